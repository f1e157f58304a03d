"""Every target of a script compared with eager."""

from collections.abc import Sequence
from dataclasses import dataclass

from aotlens.options import CompileOptions
from aotlens.report.records import Verdict
from aotlens.session.chooser import refuse_unknown
from aotlens.session.collect import REPEATS, Collector
from aotlens.session.driver import Driver, Hooks, Order
from aotlens.session.failures import failure_of
from aotlens.session.verify import OnMismatch, Verifier
from aotlens.worker.protocol import Failure

__all__ = ["Verified", "verify_targets"]


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict on each target, and what could not be compiled."""

    verdicts: tuple[tuple[str, Verdict | None], ...]
    """By target name; None for what was compiled but never called."""
    failures: tuple[Failure, ...]

    @property
    def exit_code(self) -> int:
        """1 for a mismatch, more where something could not be compared at all."""
        codes = [_code(verdict) for _, verdict in self.verdicts if verdict is not None]
        return max([*codes, *(failure.exit_code for failure in self.failures)], default=0)


def _code(verdict: Verdict) -> int:
    """As a refusal where nothing was compared."""
    return 2 if verdict.stopped else int(not verdict.ok)


def verify_targets(
    path: str,
    qualname: str | None,
    argv: Sequence[str],
    options: CompileOptions,
    on_mismatch: OnMismatch | None = None,
) -> Verified:
    """Compile each target and compare calls; raises only KeyboardInterrupt."""
    collector = Collector(REPEATS)
    verifier = Verifier(collector, options, on_mismatch)
    hooks = Hooks(verifier.compare, verifier.around, verifier.before_direct)
    driver = Driver(Order(path, qualname, tuple(argv), options), collector, hooks)
    failures: list[Failure] = []
    try:
        driver.everything()
        refuse_unknown(collector.compiled, options)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (user code may raise anything)
        failures.append(failure_of(error, path))
    failures += collector.refused
    if not collector.compiled and not failures:
        failures.append(driver.nothing_found())
    names = [
        compiled.name if compiled.frontend == "dynamo" else compiled.qualname
        for compiled in collector.compiled
    ]
    return Verified(tuple(zip(names, verifier.verdicts(), strict=True)), tuple(failures))
