"""Run the user's script in this process, with the engine compiling what it compiles, also in spawned
processes.

Invariant: nothing is printed here, and the script's stdout and exit code stay its own.
"""

import platform
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from aotlens.model.dynamo import Dynamo
from aotlens.model.eager import NotCompiled
from aotlens.model.failure import Failure
from aotlens.model.report import Report, Target, Verdict
from aotlens.observe import running_stage
from aotlens.options import CompileOptions
from aotlens.session.collector import Collector
from aotlens.session.compile_router import CompileRouter, intercepting_compile
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.dynamo.not_compiled import not_compiled
from aotlens.session.errors.failures import exit_status, failure_of
from aotlens.session.policy_function import check_overrides, options_for_targets
from aotlens.session.processes.spawning import Job, load_outcomes, spawning
from aotlens.session.script.source import load_script, new_module, run_script
from aotlens.session.verify import Verifier
from aotlens.view.verdicts import exit_code_of, verdict_of

__all__ = ["ScriptEnd", "ScriptRun", "compile_within", "run_compiled", "run_to_end", "seed_random_numbers"]

SEED = 0


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """How a script ended."""

    exit_code: int = 0
    message: str = ""
    """The text passed to `sys.exit`; empty for a number."""
    failure: Failure | None = None

    @property
    def incomplete(self) -> str | None:
        """Return why a report of the run may lack targets; None if the script ran to its end."""
        return None if self.failure is None else f"the script failed: {self.failure.message}"


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """How a script ended, and what it compiled."""

    path: str
    end: ScriptEnd
    targets: tuple[Target, ...]
    verdicts: tuple[Verdict | None, ...]
    """In the order of the targets; None without `--verify`."""
    not_compiled: tuple[NotCompiled, ...] = ()
    """What the script passed to `torch.compile` and ran in eager."""
    is_verified: bool = False
    """Whether `--verify` is set."""
    dynamo: Dynamo | None = None
    """What Dynamo did in this process; None if it compiled nothing."""

    def exit_code(self, allow_unverified: bool) -> int:
        """Return the script's own exit code, else 1 unless everything compared equals eager."""
        compared = [verdict for verdict in self.verdicts if verdict is not None]
        eager = map(verdict_of, self.not_compiled) if self.is_verified else ()
        verdicts = (*compared, *(verdict for verdict in eager if verdict is not None))
        return self.end.exit_code or exit_code_of(verdicts, allow_unverified)

    def report(self) -> Report:
        from aotlens.diagnostics.correctness import with_verdict
        from aotlens.diagnostics.tracing import dynamo_findings, from_not_compiled, is_found_in_dynamo

        targets = tuple(map(with_verdict, self.targets, self.verdicts))
        eager = (record for record in self.not_compiled if not is_found_in_dynamo(record))
        findings = (*map(from_not_compiled, eager), *dynamo_findings(self.dynamo))
        versions = (torch.__version__, platform.python_version())
        return Report(
            *versions,
            f"run {self.path}",
            targets,
            findings,
            self.not_compiled,
            dynamo=self.dynamo,
            incomplete=self.end.incomplete,
        )


def run_compiled(path: str, argv: Sequence[str], options: CompileOptions, verify: bool) -> ScriptRun:
    """Run the script to its end, whatever that is; raises only KeyboardInterrupt."""

    def script() -> None:
        loaded = load_script(path)
        run_script(loaded, new_module(loaded, "__main__"), argv)

    return compile_within(Job(path, options, verify), script)


def compile_within(job: Job, script: Callable[[], None]) -> ScriptRun:
    """Run code of the script with the engine, in this process and in those that it spawns."""
    with spawning(job) as folder:
        ran = _compile_here(job, script)
        return _with_spawned(ran, load_outcomes(folder))


def _with_spawned(ran: ScriptRun, outcomes: Sequence[ScriptRun]) -> ScriptRun:
    """Add what other processes compiled; a graph that several compile counts once, unless verified."""
    if not outcomes:
        return ran
    pairs: list[tuple[Target, Verdict | None]] = []
    for each in (ran, *outcomes):
        earlier = {_identity(target) for target, _ in pairs}
        new = zip(each.targets, each.verdicts, strict=True)
        pairs += [pair for pair in new if pair[1] is not None or _identity(pair[0]) not in earlier]
    names = {name for target, _ in pairs for name in (target.name, target.qualname)}
    eager = [entry for each in (ran, *outcomes) for entry in each.not_compiled]
    # What one process does not call, another one may.
    eager = [entry for entry in eager if entry.cause != "not called" or entry.name not in names]
    return replace(
        ran,
        targets=tuple(target for target, _ in pairs),
        verdicts=tuple(verdict for _, verdict in pairs),
        not_compiled=tuple(dict.fromkeys(eager)),
    )


def _identity(target: Target) -> tuple[object, ...]:
    return target.qualname, target.span, target.mode, target.inputs


def _compile_here(job: Job, script: Callable[[], None]) -> ScriptRun:
    path, options, verify = job.path, job.options, job.verify
    collector, log = Collector(path), DynamoLog()
    verifier = Verifier(collector, options)
    router = CompileRouter(options, collector)
    if verify:
        router = replace(router, around=verifier.around, before_direct=verifier.before_direct)

    def work() -> None:
        chosen = replace(router, options=options_for_targets(options))
        with collector.listening(), intercepting_compile(chosen), log.listening():
            script()
        check_overrides(collector.compiled, options)

    end = run_to_end(work, path)
    sys.stdout.flush()
    with running_stage("report"):
        targets = tuple(compiled.target() for compiled in collector.compiled)
    verdicts = verifier.verdicts() if verify else [None] * len(targets)
    eager = not_compiled(collector, log)
    return ScriptRun(path, end, targets, tuple(verdicts), eager, verify, log.dynamo(targets))


def run_to_end(work: Callable[[], None], path: str) -> ScriptEnd:
    """Return how the script ended; a failure has exit code 2, as the user's other mistakes."""
    try:
        work()
    except SystemExit as error:
        return ScriptEnd(exit_status(error), error.code if isinstance(error.code, str) else "")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (user code may raise anything; the table still follows)
        failure = failure_of(error, path)
        return ScriptEnd(failure.exit_code, "", failure)
    return ScriptEnd()


def seed_random_numbers() -> None:
    """Seed the random numbers, so that every run has the same, also if the script sets no seed."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED)
