"""Follow logs that are still being written.

Invariant: nothing is read twice: a log is read on from its last offset, with its table of file names; only a
new log in the folder makes all logs be opened again.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aotlens.model.report import Report, Span
from aotlens.model.spans import shown_path
from aotlens.trace.logs.log_file import log_paths
from aotlens.trace.logs.reader import Trace, open_trace
from aotlens.view.quantities import human_bytes, target_summary

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
    known = set(_events(before)) if before is not None else set()
    listed = {event.compiled for event in known if event.is_listed}
    read = {event.compiled for event in known if not event.is_listed}
    for event in dict.fromkeys(_events(now)):
        was_listed = bool(event.compiled) and event.compiled in listed
        if event not in known and not was_listed and not (event.is_listed and event.compiled in read):
            yield f"{event.subject}  {event.facts}"


@dataclass(frozen=True, slots=True)
class _Event:
    """One line of the output."""

    subject: str
    facts: str
    is_listed: bool = False
    """True for a target that was not read; which are read changes as the log grows."""
    compiled: str = ""
    """The compilation of a target, read or not: its id, function and line."""


def _events(report: Report) -> Iterator[_Event]:
    for target in report.targets:
        graph = "" if target.graph is None else f"{target.graph.frame}/{target.graph.compilation} "
        where = _where(target.span)
        subject = f"compiled    {graph}{target.name}{where}"
        yield _Event(subject, target_summary(target), compiled=f"{graph}{target.qualname}{where}")
    for listed in report.log.listed if report.log is not None else ():
        size = f"{listed.mode} · {human_bytes(listed.bytes)} of graphs and code"
        compiled = f"{listed.compile_id} {listed.qualname}{_where(listed.span)}"
        yield _Event(f"compiled    {compiled}", size, is_listed=True, compiled=compiled)
    if report.dynamo is None:
        return
    for entry in report.dynamo.breaks:
        yield _Event(f"graph break {_where(entry.span).lstrip()}", entry.reason)
    for function in report.dynamo.functions:
        for number, recompilation in enumerate(function.recompilations, start=1):
            cause = recompilation.cause.guard if recompilation.cause is not None else "the log has no reason"
            yield _Event(f"recompiled  {function.qualname} ({number})", cause)


def _where(span: Span | None) -> str:
    return "" if span is None else f"  {shown_path(span.file)}:{span.line}"
