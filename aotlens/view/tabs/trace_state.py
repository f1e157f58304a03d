"""The state of the running trace, as one value that the app owns."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotlens.model.failure import Failure
from aotlens.model.spans import file_name
from aotlens.view.progress import PHASES, STARTING, Phase, PhaseKind
from aotlens.view.quantities import COMPARED, counted, human_ms, human_seconds
from aotlens.view.tabs.tables.rows import VERDICT_ROLES, Line, Part
from aotlens.view.verdicts import WORST_FIRST

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Report, Target


@dataclass(frozen=True, slots=True)
class TraceState:
    """One trace, and what the screen shows meanwhile."""

    phase: str = "idle"
    """`idle`, `tracing`, `failed` or `ready`."""
    trace: int = 0
    """Number of the newest trace; answers with a smaller one are stale."""
    phases: tuple[tuple[Phase, float], ...] = ((STARTING, 0.0),)
    """The phases reached, each with its start in seconds after the start of the trace; the last one runs."""
    failure: Failure | None = None
    """Also beside a report: the script failed after something was traced."""
    elapsed_ms: float | None = 0.0
    """None if nothing changed since an earlier trace, whose answer is shown."""
    change: tuple[Part, ...] = ()
    """The changes of this trace, if the same target was traced before."""

    def reached(self, phase: Phase, elapsed_s: float) -> TraceState:
        """Return the state after a progress message; the same phase again only changes its words."""
        last, began_s = self.phases[-1]
        if last.kind == phase.kind:
            return replace(self, phases=(*self.phases[:-1], (phase, began_s)))
        return replace(self, phases=(*self.phases, (phase, elapsed_s)))

    @property
    def has_failed(self) -> bool:
        """Return True if something failed that the user did not stop."""
        return self.failure is not None and self.failure.kind != "cancelled"


def title_parts(name: str, report: Report | None, target: Target | None) -> tuple[Part, ...]:
    """Return the left half of the title bar."""
    parts = [
        Part("aotlens ", "accent"),
        Part(f" {os.path.relpath(name) if os.path.isabs(name) else name}", "title"),
    ]
    if target is not None:
        parts.append(Part(f"  {target.qualname}", "title"))
        parts.append(Part(f"  {target.mode}", "dim"))
    if report is not None and len(report.targets) > 1:
        parts.append(Part(f" · {counted(len(report.targets), 'target')}", "dim"))
    return tuple(parts)


def state_parts(state: TraceState, report: Report | None, elapsed_s: float) -> tuple[Part, ...]:
    """Return the right half of the title bar."""
    if state.phase == "tracing":
        old = " · showing the previous report" if report is not None else ""
        return (Part(f"{state.phases[-1][0]} {elapsed_s:.1f} s", "accent"), Part(old, "dim"))
    if state.phase == "failed" and state.failure is not None and state.failure.kind == "cancelled":
        return (Part("cancelled", "warning"), Part(" · r retraces", "dim"))
    if state.phase == "failed":
        old = " · showing the previous report" if report is not None else ""
        return (Part("trace failed", "error"), Part(f"{old} · r retries", "dim"))
    if state.phase == "ready":
        change = (*state.change, Part(" · ", "dim")) if state.change else ()
        return (*change, *_lacking(report), *_ended(state))
    return (*_lacking(report), Part(f"report · torch {report.torch}", "dim")) if report is not None else ()


def _ended(state: TraceState) -> tuple[Part, ...]:
    if state.has_failed:
        return (Part("the script failed", "error"), Part(" · 9 shows where, 0 the traceback", "dim"))
    if state.elapsed_ms is None:
        return (Part("unchanged", "ok"), Part(", from the cache", "dim"))
    return (Part("traced", "ok"), Part(f" in {human_ms(state.elapsed_ms)}", "dim"))


def _lacking(report: Report | None) -> tuple[Part, ...]:
    """Return the verdict of a comparison with eager, and what is missing from the report."""
    if report is None:
        return ()
    parts = []
    verdicts = {target.verified.outcome for target in report.targets if target.verified is not None}
    if worst := next((outcome for outcome in WORST_FIRST if outcome in verdicts), None):
        parts += [Part(COMPARED[worst], VERDICT_ROLES[worst]), Part(" · ", "dim")]
    if count := sum(record.is_loss for record in report.not_compiled):
        parts += [Part(f"{count} not compiled", "warning"), Part(" · ", "dim")]
    failures = failure_count(report)
    if report.incomplete is not None:
        parts += [Part("incomplete", "error" if failures else "warning"), Part(" · ", "dim")]
    elif failures:  # of examples and functions, in a script that did not fail itself
        parts += [Part(f"{failures} failed", "error"), Part(" · ", "dim")]
    return tuple(parts)


def failure_count(report: Report) -> int:
    """Return how many findings of a report are failures: of the script, or of its examples and functions."""
    from aotlens.diagnostics.failures import FAILURE_FAMILY  # the first screen loads without the records

    return sum(
        diagnostic.severity == "error" and diagnostic.code.startswith(FAILURE_FAMILY)
        for diagnostic in report.diagnostics
    )


def progress_lines(name: str, state: TraceState, elapsed_s: float) -> tuple[Line, ...]:
    """Return the finished and the remaining phases of a trace, until there is a first result.

    A script runs on after each of its targets is traced, so a phase may come again; its times are added up.
    """
    lines = [Line((Part(f"Tracing {name}", "title"),)), Line()]
    ends_s = [*(began_s for _, began_s in state.phases[1:]), elapsed_s]
    seconds: dict[PhaseKind, float] = {}
    reached: dict[PhaseKind, Phase] = {}
    for (phase, began_s), end_s in zip(state.phases, ends_s, strict=True):
        seconds[phase.kind] = seconds.get(phase.kind, 0.0) + end_s - began_s
        reached[phase.kind] = phase
    running = state.phases[-1][0]
    for kind, phase in reached.items():
        is_running = phase is running
        mark, role = ("›", "accent") if is_running else ("+", "ok")
        lines.append(_phase_line(mark, role, str(phase) if is_running else phase.words, seconds[kind]))
    last = max((index for index, phase in enumerate(PHASES) if phase.kind in reached), default=0)
    lines += [Line((Part(f"    {phase.words}", "dim"),)) for phase in PHASES[last + 1 :]]
    lines += [Line(), Line((Part("Esc cancels", "dim"),))]
    return tuple(lines)


def _phase_line(mark: str, role: str, words: str, elapsed_s: float) -> Line:
    return Line(
        (Part(f"  {mark} ", role), Part(f"{words:<30}", "name"), Part(human_seconds(elapsed_s), "dim"))
    )


NOT_RECORDED = "saved reports and logs do not record what the script printed"
"""The text of the tab Log where nothing was traced here."""


def log_text(output: str, failure: Failure | None) -> str:
    """Return the script's output, and the traceback if it failed."""
    traceback = failure.traceback if failure is not None else ""
    return "\n".join(part.rstrip("\n") for part in (output, traceback) if part.strip())


FAILURE_TITLES = {
    "syntax": "The script does not parse",
    "user": "The script raised an exception",
    "exit": "The script exited",
    "no-file": "The file cannot be opened",
    "no-target": "Nothing to compile was found",
    "bad-example": "An example comment cannot be read",
    "unsupported": "This case is unsupported",
    "timeout": "The trace exceeded its time limit",
    "memory": "The trace exceeded its memory limit",
    "crash": "The traced process crashed",
    "killed": "The tracing process was killed",
    "no-gpu": "There is no GPU here",
    "no-value": "A value is needed",
    "left-out": "Not compiled by Dynamo",
    "cancelled": "The trace was cancelled",
    "internal": "aotlens failed: this is a bug of aotlens",
}


def failure_lines(failure: Failure, log_key: str) -> tuple[Line, ...]:
    """Return the failure and its remedies; `log_key` opens the script's output."""
    where = f"{file_name(failure.file)}:{failure.line}" if failure.file and failure.line else ""
    edit = f" · e opens {where}" if where else ""
    keys = f"r retraces{edit} · {log_key} shows what the script printed · q quits"
    lines = [
        Line((Part(FAILURE_TITLES.get(failure.kind, failure.kind), "error"),)),
        Line(),
        Line((Part(failure.message),), wrap=True),
        Line(),
        Line((Part(keys, "dim"),), wrap=True),
    ]
    return tuple(lines)
