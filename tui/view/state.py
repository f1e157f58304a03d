"""How the trace stands, as one value that the app owns."""

import os
from dataclasses import dataclass, replace

from aotlens.report.places import file_name
from aotlens.report.records import Report, Target
from aotlens.report.summary import counted, human_ms
from aotlens.worker.protocol import Failure
from tui.view.rows import Line, Part

STAGES = ("import", "run", "captured", "functional", "joint", "partition", "forward", "backward", "report")
"""What a trace usually passes, to show what is still to come; others are shown as they come."""


@dataclass(frozen=True, slots=True)
class TraceState:
    """One trace, and what is on the screen meanwhile."""

    phase: str = "idle"
    """`idle`, `tracing`, `failed` or `ready`."""
    trace: int = 0
    """Number of the newest trace; answers with a smaller one are stale."""
    seen: tuple[tuple[str, float], ...] = ()
    """Stages reached, each with the seconds since the start."""
    detail: str = ""
    failure: Failure | None = None
    elapsed_ms: float = 0.0
    change: tuple[Part, ...] = ()
    """What this trace changed, where the same target was traced before."""

    def reached(self, stage: str, detail: str, elapsed_s: float) -> "TraceState":
        """After a progress message; the same stage again only changes the detail."""
        if self.seen and self.seen[-1][0] == stage:
            return replace(self, detail=detail)
        return replace(self, seen=(*self.seen, (stage, elapsed_s)), detail=detail)

    @property
    def stage(self) -> str:
        return self.seen[-1][0] if self.seen else "worker starts"


def title_parts(name: str, report: Report | None, target: Target | None) -> tuple[Part, ...]:
    """The left half of the title bar."""
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
    """The right half of the title bar."""
    if state.phase == "tracing":
        old = " · showing the result before" if report is not None else ""
        return (Part(f"tracing: {state.stage} {elapsed_s:.1f} s", "accent"), Part(old, "dim"))
    if state.phase == "failed" and state.failure is not None and state.failure.kind == "cancelled":
        return (Part("cancelled", "warning"), Part(" · r traces again", "dim"))
    if state.phase == "failed":
        old = " · showing the result before" if report is not None else ""
        return (Part("trace failed", "error"), Part(f"{old} · r retries", "dim"))
    if state.phase == "ready":
        change = (*state.change, Part(" · ", "dim")) if state.change else ()
        took = Part(f" in {human_ms(state.elapsed_ms)}", "dim")
        return (*change, *_lacking(report), Part("traced", "ok"), took)
    return (*_lacking(report), Part(f"report · torch {report.torch}", "dim")) if report is not None else ()


def _lacking(report: Report | None) -> tuple[Part, ...]:
    """That a part of what the script passed to `torch.compile` is not in the report."""
    if report is None:
        return ()
    parts = []
    if count := sum(record.is_loss for record in report.not_compiled):
        parts += [Part(f"{count} not compiled", "warning"), Part(" · ", "dim")]
    if report.incomplete is not None:
        parts += [Part("incomplete", "warning"), Part(" · ", "dim")]
    return tuple(parts)


def progress_lines(name: str, state: TraceState, elapsed_s: float) -> tuple[Line, ...]:
    """What stands in place of the first result."""
    lines = [Line((Part(f"Tracing {name}", "title"),)), Line()]
    times = [start for _, start in state.seen[1:]] + [elapsed_s]
    for (stage, start), end in zip(state.seen, times, strict=False):
        done = end is not elapsed_s
        mark = Part("  + ", "ok") if done else Part("  › ", "accent")
        lines.append(Line((mark, Part(f"{stage:<14}", "name"), Part(human_ms((end - start) * 1000), "dim"))))
    if not state.seen:
        lines.append(
            Line(
                (
                    Part("  › ", "accent"),
                    Part(f"{state.stage:<14}", "name"),
                    Part(f"{elapsed_s:.1f} s", "dim"),
                )
            )
        )
    reached = {stage for stage, _ in state.seen}
    last = max((STAGES.index(stage) for stage in reached if stage in STAGES), default=-1)
    lines += [Line((Part(f"    {stage}", "dim"),)) for stage in STAGES[last + 1 :]]
    if state.detail:
        lines += [Line(), Line((Part(state.detail, "dim"),), wrap=True)]
    lines += [Line(), Line((Part("Esc cancels", "dim"),))]
    return tuple(lines)


FAILURE_TITLES = {
    "syntax": "The script does not parse",
    "user": "The script raised an exception",
    "exit": "The script ended itself",
    "no-file": "The file cannot be opened",
    "no-target": "Nothing to compile was found",
    "bad-example": "An example comment cannot be read",
    "unsupported": "The engine does not support this yet",
    "timeout": "The trace took too long and was ended",
    "memory": "The trace needed too much memory",
    "crash": "The traced process died",
    "killed": "The tracing process was killed from outside",
    "no-gpu": "There is no GPU here",
    "no-value": "A value is needed",
    "left-out": "Left out by Dynamo",
    "cancelled": "The trace was cancelled",
    "internal": "aotlens failed: this is our fault",
}


def failure_lines(failure: Failure, log_key: str) -> tuple[Line, ...]:
    """What went wrong, and what can be done here; `log_key` opens what the script printed."""
    where = f"{file_name(failure.file)}:{failure.line}" if failure.file and failure.line else ""
    edit = f" · e opens {where}" if where else ""
    keys = f"r traces again{edit} · {log_key} shows what the script printed · q quits"
    lines = [
        Line((Part(FAILURE_TITLES.get(failure.kind, failure.kind), "error"),)),
        Line(),
        Line((Part(failure.message),), wrap=True),
        Line(),
        Line((Part(keys, "dim"),), wrap=True),
    ]
    return tuple(lines)
