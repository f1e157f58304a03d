"""List everything that the script passes to `torch.compile` and that does not run compiled.

Invariant: each piece of code is listed once, with the most informative reason: the engine's own error, then
Dynamo's reason, then the fact that no graph of it was captured.
"""

import sys
from collections.abc import Iterator
from typing import Any

import torch

from aotlens.capture.provenance.frames import is_first_party_file
from aotlens.dynamo.break_messages import break_sentence
from aotlens.model.eager import CODES, NotCompiled, NotCompiledCause
from aotlens.model.failure import Failure
from aotlens.model.source import Span
from aotlens.session.collector import Collector, CompiledCallable
from aotlens.session.dynamo.log import DynamoLog, first_line
from aotlens.torch_api.dynamo.state import unsupported_frames

__all__ = ["not_compiled", "uncaptured_failures"]

BETWEEN = "external_utils.py"
"""Dynamo's own function around a module of torch's that is compiled by itself.

All such modules share it: once Dynamo has skipped it for one of them, it skips it for all.
"""

ORDER: tuple[NotCompiledCause, ...] = (
    "internal",
    "unsupported",
    "backend",
    "whole function",
    "rest of function",
    "skipped",
    "recompile limit",
    "not called",
    "no graph",
    "other backend",
    "graph break",
)
"""The most important kinds first."""


def not_compiled(collector: Collector, log: DynamoLog) -> tuple[NotCompiled, ...]:
    """Return every record once, the most important first."""
    records = [*collector.eager_graphs, *collector.eager_calls, *log.records]
    named = {record.name for record in log.records if record.cause in ("whole function", "skipped")}
    records += [record for record in _skipped_whole(collector, log) if record.name not in named]
    named |= {record.name for record in records}
    records += [
        record
        for record in _without_graph(collector, log)
        if record.cause == "not called" or record.name not in named
    ]
    records += collector.other_backends
    return tuple(sorted(records, key=lambda record: ORDER.index(record.cause)))


def uncaptured_failures(collector: Collector, log: DynamoLog, script: str) -> Iterator[Failure]:
    """Yield the functions of which Dynamo captured no graph, as failures of a trace."""
    for record in (*_skipped_whole(collector, log), *log.layers_without_effect()):
        file, line = (script, None) if record.span is None else (record.span.file, record.span.line)
        location = file if line is None else f"{file}:{line}"
        message = f"{location}: Dynamo does not compile `{record.name}`, so there is no graph of it"
        yield Failure("left-out", f"{message}: {record.reason}", file=file, line=line)


def _skipped_whole(collector: Collector, log: DynamoLog) -> Iterator[NotCompiled]:
    """Yield each function passed to `torch.compile` that Dynamo skips as a whole, once."""
    if "torch._dynamo.utils" not in sys.modules:
        return
    entries = {location: name for entry in collector.callables for location, name in entry.entries}
    layers, others = _layers_and_functions_of_torch(collector)
    seen: set[tuple[str, int]] = set()
    for file, first, reason, at_file, at_line in unsupported_frames():
        between = file.endswith(BETWEEN)
        wrapped = next(iter((*layers, *others)), None) if between else None
        name = _name(wrapped.function) if wrapped is not None else entries.get((file, first))
        if name is None or (file, first) in seen:
            continue
        seen.add((file, first))
        span = None
        if at_file is not None and is_first_party_file(at_file):
            span = first_line(at_file, at_line or 1)
        elif is_first_party_file(file):
            span = first_line(file, first)
        elif wrapped is not None:
            span = _definition_or_site(log, wrapped)
        yield _record(name, "whole function", break_sentence(reason), span)
        for other in layers[1:] if between else ():
            why = (
                f"after `{name}` it skips all layers of torch's that are compiled by themselves; "
                "compile a module of your own that holds it, or call `torch.compiler.reset()` before"
            )
            yield _record(_name(other.function), "whole function", why, _definition_or_site(log, other))


def _without_graph(collector: Collector, log: DynamoLog) -> Iterator[NotCompiled]:
    """Yield functions passed to `torch.compile` that have no graph, without a reason from Dynamo."""
    for entry in collector.callables:
        if collector.has_graph(entry) or not entry.entries:
            continue
        _, name = entry.entries[0]
        span = _definition_or_site(log, entry)
        if any(location in log.seen for location, _ in entry.entries) or entry.call_order:
            reason = "it ran, and Dynamo found no tensor operation in it to capture"
            yield _record(name, "no graph", reason, span)
        elif not entry.is_of_import:
            yield _record(name, "not called", "it was passed to torch.compile and never called", span)


def _definition_or_site(log: DynamoLog, entry: CompiledCallable) -> Span | None:
    """Return the function's own first line, or where the script compiles it if a library defines it."""
    for (file, line), name in entry.entries:
        if is_first_party_file(file):
            return first_line(file, line)
        for site in log.listener.sites.of_function(file, line, name):
            return site
    return None


def _record(name: str, cause: NotCompiledCause, reason: str, span: Span | None) -> NotCompiled:
    return NotCompiled(name, name, cause, reason, CODES[cause], span)


def _layers_and_functions_of_torch(
    collector: Collector,
) -> tuple[list[CompiledCallable], list[CompiledCallable]]:
    """Return torch's own layers without a graph, in the order of their calls, and its own functions."""
    missing = [entry for entry in collector.callables if not (collector.has_graph(entry) or entry.is_own)]
    layers = sorted((entry for entry in missing if entry.call_order), key=lambda entry: entry.call_order)
    return layers, [entry for entry in missing if not isinstance(entry.function, torch.nn.Module)]


def _name(function: Any) -> str:
    function = getattr(function, "__self__", function)  # `layer.compile()` passes the layer's bound method
    return str(getattr(function, "__name__", type(function).__name__))
