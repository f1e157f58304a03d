"""List what was passed to `torch.compile` and called without running a graph, with reasons.

Dynamo traces modules and functions of torch's own through a wrapper, and all share the wrapper's
compilations: what Dynamo could not trace of one module leaves others in eager, without a message of its own.

Invariant: the calls are counted as they run, not derived from what Dynamo compiled.
"""

from collections.abc import Container, Sequence
from dataclasses import replace

from aotlens.dynamo.breaks import BreakFacts, is_limit
from aotlens.dynamo.skips import NO_OPERATORS, Skip, skip_of
from aotlens.model.eager import CODES, NotCompiled, NotCompiledCause
from aotlens.model.source import Span
from aotlens.session.collector import Collector, CompiledCallable
from aotlens.session.dynamo.log import DynamoLog, limit_words, reason_of
from aotlens.torch_api.dynamo.events import DynamoLoss
from aotlens.torch_api.dynamo.listener import is_wrapper
from aotlens.view.quantities import counted

__all__ = ["of_calls_in_eager", "own_in_eager", "ran_in_graph"]


def of_calls_in_eager(collector: Collector, log: DynamoLog) -> tuple[NotCompiled, ...]:
    """Return one record per class or function, line that compiles it, and reason."""
    without_effect = {(record.name, record.span) for record in log.layers_without_effect()}
    groups: dict[tuple[str, Span | None], list[CompiledCallable]] = {}
    for entry in collector.callables:
        if entry.eager_calls or entry.failed_calls or not ran_in_graph(entry, log):
            site = log.listener.sites.of_callable(entry.function)
            groups.setdefault((entry.name, site), []).append(entry)
    records: list[NotCompiled | None] = []
    for (name, site), entries in groups.items():
        records += [_of_state(name, site, entries), _of_own_skip(name, site, entries, log)]
        wrapped = [entry for entry in entries if entry.is_wrapped]
        if wrapped and (name, site) not in without_effect:
            records.append(_of_wrapped(name, site, wrapped, log))
    return tuple(record for record in records if record is not None)


def ran_in_graph(entry: CompiledCallable, log: DynamoLog) -> bool:
    """Return True if a graph of it ran, or if Dynamo traced its code as a part of other code."""
    return entry.ran_compiled or any(location in log.listener.inlined for location, _ in entry.entries)


def own_in_eager(collector: Collector) -> set[str]:
    """Return the names of the user's and libraries' code of which no call ran a graph."""
    called = [entry for entry in collector.callables if entry.calls and not entry.is_wrapped]
    return {entry.name for entry in called} - {entry.name for entry in called if entry.ran_compiled}


def _of_state(name: str, site: Span | None, entries: Sequence[CompiledCallable]) -> NotCompiled | None:
    """Return the record of calls during which Dynamo was off."""
    states = dict.fromkeys(state for entry in entries for state in entry.states)
    if not states:
        return None
    calls = sum(sum(entry.states.values()) for entry in entries)
    return _record(name, "; ".join(states), site, calls, entries)


def _of_own_skip(
    name: str, site: Span | None, entries: Sequence[CompiledCallable], log: DynamoLog
) -> NotCompiled | None:
    """Return the record of calls of the user's code that Dynamo skipped, though it holds operators."""
    own = [entry for entry in entries if not entry.is_wrapped and _unexplained(entry)]
    if own and not own[0].entries:
        reason = "it runs no Python code, which is all that Dynamo compiles: pass what was scripted or traced"
        return _record(name, reason, site, sum(map(_unexplained, own)), own)
    locations = {location for entry in own for location, _ in entry.entries}
    for file, line, reason in log.listener.skipped_code():
        skip = skip_of(reason) if (file, line) in locations else None
        if skip is not None and skip.is_loss:
            return _record(name, _skip_words(skip), site, sum(map(_unexplained, own)), own)
    return None


def _unexplained(entry: CompiledCallable) -> int:
    """Return how many calls ran in eager though nothing was in force that keeps Dynamo from compiling."""
    return entry.eager_calls - sum(entry.states.values())


def _skip_words(skip: Skip) -> str:
    return "; ".join(filter(None, (f"Dynamo skips it: {skip.reason}", skip.hint)))


def _record(
    name: str, reason: str, site: Span | None, calls: int, entries: Sequence[CompiledCallable]
) -> NotCompiled:
    compiled_calls = sum(entry.calls - entry.eager_calls - entry.failed_calls for entry in entries)
    cause: NotCompiledCause = "some calls" if compiled_calls else "whole function"
    if compiled_calls:
        reason += f"; {counted(compiled_calls, 'other call')} of it ran compiled"
    return NotCompiled(
        name=name, qualname=name, cause=cause, reason=reason, code=CODES[cause], span=site, calls=calls
    )


def _of_wrapped(
    name: str, site: Span | None, entries: Sequence[CompiledCallable], log: DynamoLog
) -> NotCompiled | None:
    """Return the record of calls of torch's own modules; None if Dynamo reported no loss that explains them.

    Without one they hold no operator, as `Identity`, or functions were not called.
    """
    breaks = [facts for facts in log.listener.breaks if facts.wrapped]
    eager_calls = sum(map(_unexplained, entries))
    ids = {id(entry.function) for entry in entries}
    own = next((facts for facts in breaks if facts.wrapped.keys() & ids), None)
    if own is not None and (eager_calls or own.effect == "error"):
        return _record(name, reason_of(own), own.span if own.has_user_line else site, eager_calls, entries)
    if eager_calls == 0:
        return None
    if skip := _own_skip(ids, log):
        return _record(name, _skip_words(skip), site, eager_calls, entries) if skip.is_loss else None
    if reason := _earlier_skip_words(name, breaks, log):
        return _record(name, reason, site, eager_calls, entries)
    if reason := _shared_limit_words(log):
        record = _record(name, reason, site, eager_calls, entries)
        return replace(record, cause="recompile limit", code=CODES["recompile limit"])
    if split := next((facts for facts in breaks if facts.effect == "graph split"), None):
        return _record(name, _reuse_words(split, f"`{split.caller}`"), site, eager_calls, entries)
    return None


def _earlier_skip_words(name: str, breaks: Sequence[BreakFacts], log: DynamoLog) -> str:
    """Return the reason if another module made Dynamo give up the wrapper for this one too; else empty."""
    if alike := next((facts for facts in breaks if facts.caller == name), None):
        return _reuse_words(alike, f"another `{name}`")
    if skipping := _skipping_call(breaks, log):
        return (
            f"after {skipping} Dynamo skips all modules of torch's own that are compiled by themselves;"
            " compile a module of your own that holds it, or call `torch.compiler.reset()` before"
        )
    return ""


def _shared_limit_words(log: DynamoLog) -> str:
    """Return the reason if the modules of torch's own reached the wrapper's limit together; else empty."""
    limit = next(filter(_is_of_wrapper, log.listener.losses), None)
    if limit is None:
        return ""
    return (
        "all modules of torch's own that are compiled by themselves share one limit of compilations"
        f" ({limit_words(limit.message)}), and it was reached; raise it, or compile a module of your own"
        " that holds them"
    )


def _reuse_words(facts: BreakFacts, broken: str) -> str:
    return (
        f"Dynamo reuses what it compiled for {broken}, whose call is a graph break"
        f" ({_location(facts)}): what removes that break compiles this one too"
    )


def _own_skip(ids: Container[int], log: DynamoLog) -> Skip | None:
    skips = (skip_of(skip.reason) for key, skip in log.listener.wrapped_skips.items() if key in ids)
    return next((skip for skip in skips if skip is not None), None)


def _skipping_call(breaks: Sequence[BreakFacts], log: DynamoLog) -> str:
    """Return the call after which Dynamo skips the wrapper, and with it all that the wrapper calls."""
    for facts in breaks:
        if facts.effect == "function in eager":
            return f"`{facts.caller}` ({_location(facts)})"
    for skip in log.listener.wrapped_skips.values():
        if skip.reason.startswith(NO_OPERATORS):
            where = "" if skip.call is None else f" ({skip.call.file}:{skip.call.line})"
            return f"`{skip.name}`{where}, which holds no operator,"
    return ""


def _is_of_wrapper(loss: DynamoLoss) -> bool:
    return is_limit(loss) and is_wrapper(loss.root)


def _location(facts: BreakFacts) -> str:
    return f"{facts.span.file}:{facts.span.line}"
