"""Compile time and the memory curve of a report as a trace for Perfetto, in Chrome's trace-event format.

Invariant: every duration in the trace was measured, and every count of bytes is the report's.  A report has
durations and no moments, so slices of one track lie end to end; the axis of the memory curve is the order of
the nodes, one millisecond each, as its track says; `NOTE` says so in the file.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aotlens.model.dynamo import Compilation, Dynamo, DynamoFunction
from aotlens.model.report import Memory, Report, Span, Target
from aotlens.model.spans import location, source_line
from aotlens.view.quantities import exact_bytes

__all__ = ["perfetto_text"]

Event = dict[str, Any]

US_PER_S = 1_000_000.0
US_PER_MS = 1_000.0
NOTE = "durations are measured and drawn end to end; the memory curve has one millisecond per node"
NODE_US = 1_000
"""The width of one node of the memory curve in the trace."""


@dataclass(slots=True)
class _Process:
    """One group of tracks."""

    number: int
    name: str
    threads: int = 0

    def events(self) -> Iterator[Event]:
        yield {"ph": "M", "name": "process_name", "pid": self.number, "tid": 0, "args": {"name": self.name}}
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": self.number,
            "tid": 0,
            "args": {"sort_index": self.number},
        }

    def thread(self, name: str) -> tuple[int, Event]:
        """Return the number of a new track, and the event that names it."""
        self.threads += 1
        args = {"name": name}
        event = {"ph": "M", "name": "thread_name", "pid": self.number, "tid": self.threads, "args": args}
        return self.threads, event


def perfetto_text(report: Report) -> str:
    """Return the file's text."""
    data = {
        "displayTimeUnit": "ms",
        "otherData": {
            "command": report.command,
            "torch": report.torch,
            "python": report.python,
            "note": NOTE,
        },
        "traceEvents": list(_events(report)),
    }
    return json.dumps(data, ensure_ascii=False) + "\n"


def _events(report: Report) -> Iterator[Event]:
    number = 1
    if report.dynamo is not None:
        yield from _dynamo(_Process(number, "torch.compile time"), report.dynamo)
        number += 1
    if any(target.timings_ms for target in report.targets):
        yield from _stages(_Process(number, "engine stages"), report)
        number += 1
    for target in report.targets:
        if target.memory is not None:
            name = f"memory of {target.name}: 1 ms = 1 node"
            yield from _memory(_Process(number, name), target, target.memory)
            number += 1


def _slice(process: _Process, thread: int, name: str, times: tuple[float, float], args: Event) -> Event:
    """`times` are the start and the duration, in microseconds."""
    start_us, duration_us = times
    event = {"ph": "X", "cat": "aotlens", "name": name, "pid": process.number, "tid": thread}
    return {**event, "ts": start_us, "dur": duration_us, "args": args}


def _end_to_end(process: _Process, name: str, seconds: Mapping[str, float]) -> Iterator[Event]:
    """Yield one track of slices, each starting at the end of the one before."""
    thread, named = process.thread(name)
    yield named
    start_us = 0.0
    for label, duration_s in seconds.items():
        yield _slice(process, thread, label, (start_us, duration_s * US_PER_S), {})
        start_us += duration_s * US_PER_S


def _dynamo(process: _Process, dynamo: Dynamo) -> Iterator[Event]:
    yield from process.events()
    if dynamo.compile_seconds.by_phase:
        yield from _end_to_end(process, "by phase", dynamo.compile_seconds.by_phase)
    for function in dynamo.functions:
        if function.compilations:
            yield from _function(process, function)
    if dynamo.compile_seconds.by_line:
        thread, named = process.thread("time by line")
        yield named
        start_us = 0.0
        for line in dynamo.compile_seconds.by_line:
            duration_us = line.seconds * US_PER_S
            label = source_line(line.span.file, line.span.line).strip() or location(line.span)
            yield _slice(process, thread, label, (start_us, duration_us), {"source": location(line.span)})
            start_us += duration_us


def _function(process: _Process, function: DynamoFunction) -> Iterator[Event]:
    """Yield the compilations of a function, each with the time of Dynamo and of the backend."""
    thread, named = process.thread(f"compilations of {function.qualname}")
    yield named
    start_us = 0.0
    for compilation in function.compilations:
        total_us, dynamo_us, backend_us = (
            seconds * US_PER_S
            for seconds in (
                compilation.seconds.total,
                compilation.seconds.dynamo,
                compilation.seconds.backend,
            )
        )
        name = " ".join(filter(None, (compilation.id, compilation.part)))
        args = _compilation_args(compilation, function)
        total_us = max(total_us, dynamo_us + backend_us)  # nested slices must fit, whatever the last digit
        yield _slice(process, thread, name, (start_us, total_us), args)
        yield _slice(process, thread, "Dynamo", (start_us, dynamo_us), {})
        yield _slice(process, thread, "backend", (start_us + dynamo_us, backend_us), {})
        start_us += total_us


def _compilation_args(compilation: Compilation, function: DynamoFunction) -> Event:
    args: Event = {"source": location(function.span)}
    cause = compilation.cause
    if cause is not None:
        args |= {"guard that failed": cause.guard, "kind": cause.kind, "old": cause.old, "new": cause.new}
        if cause.span is not None:
            args["guard's source"] = location(cause.span)
    return args


def _stages(process: _Process, report: Report) -> Iterator[Event]:
    yield from process.events()
    for target in report.targets:
        seconds = {stage: elapsed_ms / 1000 for stage, elapsed_ms in target.timings_ms.items()}
        yield from _end_to_end(process, target.name, seconds)


def _memory(process: _Process, target: Target, memory: Memory) -> Iterator[Event]:
    yield from process.events()
    thread, named = process.thread("nodes")
    yield named
    spans = _spans(target)
    phases = ("forward" if target.partition is not None else "inference", "backward")
    peak = max(range(len(memory.curve)), key=lambda index: memory.curve[index][1], default=None)
    for index, (name, live_bytes) in enumerate(memory.curve):
        phase = phases[index >= memory.forward_nodes]
        start_us = float(index * NODE_US)
        args: Event = {"phase": phase, "live bytes": live_bytes}
        span = spans.get((phase, name))
        if span is not None:
            args |= {"source": location(span), "line": source_line(span.file, span.line).strip()}
        yield _slice(process, thread, name, (start_us, NODE_US), args)
        counter = {"ph": "C", "name": "live", "pid": process.number, "tid": 0}
        yield {**counter, "ts": start_us, "args": {"bytes": live_bytes}}
        if index == peak:
            yield _peak(process, thread, start_us, memory)


def _peak(process: _Process, thread: int, start_us: float, memory: Memory) -> Event:
    alive: Counter[str] = Counter()
    for value in memory.live_at_peak:
        alive[f"{value.name or value.node} ({value.kind})"] += value.bytes
    event = {"ph": "i", "s": "p", "name": f"peak: {exact_bytes(memory.peak_bytes)}", "pid": process.number}
    return {**event, "tid": thread, "ts": start_us, "args": dict(alive.most_common())}


def _spans(target: Target) -> dict[tuple[str, str], Span]:
    """Return the innermost source of each node that runs, by phase and name."""
    stages = ((phase, target.stage(phase)) for phase in ("forward", "backward", "inference"))
    return {
        (phase, node.name): node.spans[0]
        for phase, stage in stages
        if stage is not None
        for node in stage.nodes
        if node.spans
    }
