"""List everything that the script passes to `torch.compile` and that does not run compiled.

Invariant: each piece of code is listed once, with the most informative reason: the engine's own error, then
Dynamo's reason, then the fact that no graph of it was captured.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from aotlens.capture.provenance.frames import is_first_party_file
from aotlens.dynamo.break_messages import break_sentence
from aotlens.model.eager import CODES, NotCompiled, NotCompiledCause
from aotlens.model.failure import Failure
from aotlens.model.report import AFTER
from aotlens.model.source import Span
from aotlens.session.collector import Collector, CompiledCallable
from aotlens.session.dynamo.calls_in_eager import of_calls_in_eager, own_in_eager, ran_in_graph
from aotlens.session.dynamo.log import DynamoLog, first_line
from aotlens.torch_api.dynamo.state import unsupported_frames

__all__ = ["losses", "not_compiled", "uncaptured_failures"]

ORDER = tuple(CODES)
"""The most important causes first."""


def not_compiled(collector: Collector, log: DynamoLog) -> tuple[NotCompiled, ...]:
    """Return every record once, the most important first."""
    of_dynamo = losses(collector, log, of_calls_in_eager(collector, log))
    records = [*collector.eager_graphs, *collector.eager_calls, *of_dynamo]
    known = {record.name for record in of_dynamo if record.cause in ("whole function", "skipped")}
    records += [record for record in _skipped_whole(collector, log) if record.name not in known]
    known |= {record.name for record in records}
    records += [
        record
        for record in _without_graph(collector, log)
        if record.cause == "not called" or record.name not in known
    ]
    records += collector.other_backends
    return tuple(sorted(dict.fromkeys(records), key=lambda record: ORDER.index(record.cause)))


def losses(collector: Collector, log: DynamoLog, of_calls: Sequence[NotCompiled]) -> tuple[NotCompiled, ...]:
    """Return what Dynamo leaves in eager; a lone break is a whole function if nothing else of it was."""
    known = {(record.name, record.span) for record in of_calls}
    limited = {record.name for record in of_calls if record.cause == "recompile limit"}
    whole = own_in_eager(collector)
    has_none = bool(collector.callables) and not collector.has_graphs
    records = [*of_calls]
    for record in log.records:
        is_limit = record.cause == "recompile limit"
        if (record.name, record.span) in known or (is_limit and record.name in limited):
            continue
        if record.cause == "graph break" and (has_none or record.name.partition(AFTER)[0] in whole):
            records.append(replace(record, cause="whole function", code=CODES["whole function"]))
        else:
            records.append(record)
    return tuple(records)


def uncaptured_failures(collector: Collector, log: DynamoLog, script: str) -> Iterator[Failure]:
    """Yield the functions of which Dynamo captured no graph, as failures of a trace."""
    of_calls = (record for record in of_calls_in_eager(collector, log) if record.cause == "whole function")
    for record in (*_skipped_whole(collector, log), *of_calls, *log.layers_without_effect()):
        file, line = (script, None) if record.span is None else (record.span.file, record.span.line)
        location = file if line is None else f"{file}:{line}"
        message = f"{location}: Dynamo does not compile `{record.name}`, so there is no graph of it"
        yield Failure("left-out", f"{message}: {record.reason}", file=file, line=line)


def _skipped_whole(collector: Collector, log: DynamoLog) -> Iterator[NotCompiled]:
    """Yield each function passed to `torch.compile` that Dynamo skips as a whole, once."""
    if "torch._dynamo.utils" not in sys.modules:
        return
    entries = {location: name for entry in collector.callables for location, name in entry.entries}
    seen: set[tuple[str, int]] = set()
    for file, first, reason, at_file, at_line in unsupported_frames():
        name = entries.get((file, first))
        if name is None or (file, first) in seen:
            continue
        seen.add((file, first))
        span = None
        if at_file is not None and is_first_party_file(at_file):
            span = first_line(at_file, at_line or 1)
        elif is_first_party_file(file):
            span = first_line(file, first)
        yield _record(name, "whole function", break_sentence(reason), span)


def _without_graph(collector: Collector, log: DynamoLog) -> Iterator[NotCompiled]:
    """Yield functions passed to `torch.compile` that have no graph, without a reason from Dynamo."""
    called = {location for entry in collector.callables if entry.calls for location, _ in entry.entries}
    for entry in collector.callables:
        if ran_in_graph(entry, log):
            continue
        span = _definition_or_site(log, entry)
        if not entry.calls and any(location in called for location, _ in entry.entries):
            span = log.listener.sites.of_callable(entry.function) or span  # others of its code are called
        if entry.calls and entry.calls == entry.failed_calls:
            reason = "each of its calls raised an error before a graph of it ran"
            yield _record(entry.name, "no graph", reason, span)
        elif entry.calls:
            reason = "it ran, and Dynamo found no tensor operation in it to capture"
            yield _record(entry.name, "no graph", reason, span)
        elif not entry.is_of_import:
            yield _record(entry.name, "not called", "it was passed to torch.compile and never called", span)


def _definition_or_site(log: DynamoLog, entry: CompiledCallable) -> Span | None:
    """Return the function's own first line, or where the script compiles it if a library defines it."""
    own = (first_line(file, line) for (file, line), _ in entry.entries if is_first_party_file(file))
    return next(own, None) or log.listener.sites.of_callable(entry.function) or _site_by_code(log, entry)


def _site_by_code(log: DynamoLog, entry: CompiledCallable) -> Span | None:
    sites = log.listener.sites
    return next(
        (site for (file, line), name in entry.entries for site in sites.of_function(file, line, name)), None
    )


def _record(name: str, cause: NotCompiledCause, reason: str, span: Span | None) -> NotCompiled:
    return NotCompiled(name, name, cause, reason, CODES[cause], span)
