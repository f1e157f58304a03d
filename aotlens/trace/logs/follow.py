"""Follow logs that are still being written.

Invariant: nothing is read twice: a log is read on from its last offset, with its table of file names; only a
new log in the folder makes all logs be opened again.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from aotlens.model.report import Report, Target
from aotlens.model.spans import shown_path
from aotlens.trace.logs.log_file import log_paths
from aotlens.trace.logs.reader import Trace, open_trace
from aotlens.view.quantities import target_summary

__all__ = ["Follower", "follow", "new_lines"]

POLL_S = 1.0


class Follower:
    """The logs of one path, and how much of them was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trace = open_trace(path)
        self._sizes = self._current_sizes()

    def read_on(self) -> Trace | None:
        """Return the trace if there is more to read than the last time, else None."""
        sizes = self._current_sizes()
        if sizes == self._sizes:
            return None
        if sizes.keys() == self._sizes.keys() and not self._is_shorter(sizes):
            self.trace.refresh()
        else:
            self.trace = open_trace(self.path)
        self._sizes = sizes
        return self.trace

    def _is_shorter(self, sizes: dict[Path, int]) -> bool:
        """Return True if a log was rewritten."""
        return any(size < self._sizes[path] for path, size in sizes.items())

    def _current_sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in log_paths(self.path)}


def follow(
    follower: Follower,
    build: Callable[[Trace], Report],
    show: Callable[[Report], object],
    stop: threading.Event,
) -> None:
    """Show a report each time the logs have grown, until `stop`."""
    while not stop.wait(POLL_S):
        trace = follower.read_on()
        if trace is not None:
            show(build(trace))


def new_lines(before: Report | None, now: Report) -> Iterator[str]:
    """Yield one line for each target, graph break and recompilation that the earlier report does not have."""
    known = set(_lines(before)) if before is not None else set()
    return (line for line in dict.fromkeys(_lines(now)) if line not in known)


def _lines(report: Report) -> Iterator[str]:
    for target in report.targets:
        yield f"compiled    {_name(target)}  {target_summary(target)}"
    if report.dynamo is None:
        return
    for entry in report.dynamo.breaks:
        yield f"graph break {shown_path(entry.span.file)}:{entry.span.line}  {entry.reason}"
    for function in report.dynamo.functions:
        for number, recompilation in enumerate(function.recompilations, start=1):
            cause = recompilation.cause.guard if recompilation.cause is not None else "the log has no reason"
            yield f"recompiled  {function.qualname} ({number})  {cause}"


def _name(target: Target) -> str:
    graph = "" if target.graph is None else f"{target.graph.frame}/{target.graph.compilation} "
    where = "" if target.span is None else f"  {shown_path(target.span.file)}:{target.span.line}"
    return f"{graph}{target.name}{where}"
