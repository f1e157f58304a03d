"""Compare every target of a script with eager."""

from collections.abc import Sequence
from dataclasses import dataclass

from aotlens.model.failure import Failure, FailureKind
from aotlens.model.report import Verdict
from aotlens.options import CompileOptions
from aotlens.session.collector import REPEATS, Collector
from aotlens.session.driver import CompileRequest, Driver, Hooks
from aotlens.session.errors.failures import failure_of
from aotlens.session.policy_function import check_overrides
from aotlens.session.verify import OnMismatch, Verifier
from aotlens.view.verdicts import exit_code_of, verdict_of

__all__ = ["TargetVerdicts", "verify_targets"]


IN_EAGER: tuple[FailureKind, ...] = ("unsupported", "left-out")
"""Failures to compile a target, which then runs in eager."""


@dataclass(frozen=True, slots=True)
class TargetVerdicts:
    """The verdict on each target, and what could not be compiled."""

    verdicts: tuple[tuple[str, Verdict], ...]
    """By target name, followed by what was passed to `torch.compile` and ran in eager."""
    failures: tuple[Failure, ...]

    def exit_code(self, allow_unverified: bool) -> int:
        """Return 1 unless every target equals eager, and more if one could not be compiled.

        With `allow_unverified` these pass too, because the script continues with them in eager.
        """
        passing = IN_EAGER if allow_unverified else ()
        codes = [exit_code_of([verdict for _, verdict in self.verdicts], allow_unverified)]
        return max([*codes, *(failure.exit_code for failure in self.failures if failure.kind not in passing)])


def verify_targets(
    path: str,
    qualname: str | None,
    argv: Sequence[str],
    options: CompileOptions,
    on_mismatch: OnMismatch | None = None,
) -> TargetVerdicts:
    """Compile each target and compare calls; raises only KeyboardInterrupt."""
    collector = Collector(path, REPEATS)
    verifier = Verifier(collector, options, on_mismatch)
    hooks = Hooks(verifier.compare, verifier.around, verifier.before_direct)
    driver = Driver(CompileRequest(path, qualname, tuple(argv), options), collector, hooks)
    failures: list[Failure] = []
    try:
        driver.run()
        check_overrides(collector.compiled, options)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (user code may raise anything)
        failures.append(failure_of(error, path))
    failures += collector.failures
    if not collector.compiled and not failures:
        failures.append(driver.no_target_failure())
    names = [
        compiled.name if compiled.frontend == "dynamo" else compiled.qualname
        for compiled in collector.compiled
    ]
    verdicts = list(zip(names, verifier.verdicts(), strict=True))
    eager = ((record.name, verdict_of(record)) for record in driver.not_compiled)
    verdicts += [(name, verdict) for name, verdict in eager if verdict is not None]
    return TargetVerdicts(tuple(verdicts), tuple(failures))
