"""The user's script in this process, what it compiles compiled by the engine.

Invariant: nothing is printed here, and the script's stdout and exit code are its own.
"""

import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from aotlens.options import CompileOptions
from aotlens.report.diagnose import mismatch
from aotlens.report.records import Report, Target, Verdict
from aotlens.session.chooser import refuse_unknown, within_script
from aotlens.session.collect import Collector
from aotlens.session.failures import exit_status, failure_of
from aotlens.session.intercept import Router, intercepted
from aotlens.session.script import load_script, new_module, run_script
from aotlens.session.verify import Verifier
from aotlens.worker.protocol import Failure

__all__ = ["Ran", "run_compiled"]


@dataclass(frozen=True, slots=True)
class End:
    """How a script ended."""

    exit_code: int = 0
    said: str = ""
    """What `sys.exit` was given to print; empty for a number."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """A script's end, and what was compiled on the way."""

    path: str
    end: End
    targets: tuple[Target, ...]
    verdicts: tuple[Verdict | None, ...]
    """In the order of the targets; None where nothing was compared."""

    @property
    def mismatch(self) -> bool:
        return any(_differs(verdict) for verdict in self.verdicts)

    def report(self) -> Report:
        pairs = zip(self.targets, self.verdicts, strict=True)
        differing = tuple(
            mismatch(f"`{target.name}`: {verdict.text}", target.span)
            for target, verdict in pairs
            if verdict is not None and _differs(verdict)
        )
        command = f"run {self.path}"
        return Report(torch.__version__, platform.python_version(), command, self.targets, differing)


def _differs(verdict: Verdict | None) -> bool:
    return verdict is not None and not verdict.ok and not verdict.stopped


def run_compiled(path: str, argv: Sequence[str], options: CompileOptions, verify: bool) -> Ran:
    """Run the script to its end, whatever that is; raises only KeyboardInterrupt."""
    collector = Collector()
    verifier = Verifier(collector, options)
    router = Router(options, collector, path)
    if verify:
        router = replace(router, around=verifier.around, before_direct=verifier.before_direct)

    def work() -> None:
        script = load_script(path)
        chosen = replace(router, options=within_script(options))
        with collector.listening(), intercepted(chosen):
            run_script(script, new_module(script, "__main__"), argv)
        refuse_unknown(collector.compiled, options)

    end = _end(work, path)
    sys.stdout.flush()
    targets = tuple(compiled.target() for compiled in collector.compiled)
    return Ran(path, end, targets, tuple(verifier.verdicts()))


def _end(work: Callable[[], None], path: str) -> End:
    """How the script ended; one that failed has exit code 2, as other mistakes of the user's."""
    try:
        work()
    except SystemExit as error:
        return End(exit_status(error), error.code if isinstance(error.code, str) else "")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (user code may raise anything; the table still follows)
        failure = failure_of(error, path)
        return End(failure.exit_code, "", failure)
    return End()
