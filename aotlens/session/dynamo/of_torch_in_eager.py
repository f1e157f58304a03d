"""List torch's own modules and functions that were passed to `torch.compile` and ran no graph, with reasons.

Dynamo traces them through a wrapper, and all share the wrapper's compilations: what Dynamo could not trace of
one module leaves others in eager, without a message of its own.

Invariant: the calls of modules are counted as they run, not derived from what Dynamo compiled.
"""

from collections.abc import Container, Sequence

from aotlens.dynamo.breaks import BreakFacts, is_limit
from aotlens.dynamo.skips import NO_OPERATORS, Skip, skip_of
from aotlens.model.eager import CODES, NotCompiled, NotCompiledCause
from aotlens.model.source import Span
from aotlens.session.collector import Collector, CompiledCallable
from aotlens.session.dynamo.log import DynamoLog, limit_words, reason_of
from aotlens.torch_api.dynamo.events import DynamoLoss
from aotlens.torch_api.dynamo.listener import is_wrapper
from aotlens.view.quantities import counted

__all__ = ["of_torch_in_eager", "own_in_eager"]


def of_torch_in_eager(collector: Collector, log: DynamoLog) -> tuple[NotCompiled, ...]:
    """Return one record per class and line that compiles it."""
    groups: dict[tuple[str, Span | None], list[CompiledCallable]] = {}
    for entry in collector.callables:
        if _ran_in_eager(entry, collector):
            site = log.listener.sites.of_callable(entry.function)
            groups.setdefault((entry.name, site), []).append(entry)
    records = (_of_group(name, site, entries, log) for (name, site), entries in groups.items())
    return tuple(record for record in records if record is not None)


def own_in_eager(collector: Collector) -> set[str]:
    """Return the names of the modules of the user's and of libraries of which no call ran a graph."""
    modules = [entry for entry in collector.callables if entry.calls and not entry.is_of_torch]
    compiled = {entry.name for entry in modules if entry.eager_calls < entry.calls}
    return {entry.name for entry in modules} - compiled


def _ran_in_eager(entry: CompiledCallable, collector: Collector) -> bool:
    is_uncounted = entry.calls == 0 and not collector.has_graph(entry)
    return entry.is_of_torch and (entry.eager_calls > 0 or is_uncounted)


def _of_group(
    name: str, site: Span | None, entries: Sequence[CompiledCallable], log: DynamoLog
) -> NotCompiled | None:
    """Return the record of calls in eager; None if Dynamo reported no loss that explains them.

    Without one they hold no operator, as `Identity`, or functions were not called.
    """
    breaks = [facts for facts in log.listener.breaks if facts.wrapped]
    eager_calls = sum(entry.eager_calls for entry in entries)
    compiled_calls = sum(entry.calls for entry in entries) - eager_calls
    cause: NotCompiledCause = "some calls" if compiled_calls else "whole function"
    ids = {id(entry.function) for entry in entries}
    own = next((facts for facts in breaks if facts.wrapped.keys() & ids), None)
    if own is not None:
        reason, site = reason_of(own), own.span if own.is_traced else site
    elif eager_calls == 0:
        return None
    elif skip := _own_skip(ids, log):
        if not skip.is_loss:
            return None
        reason = "; ".join(filter(None, (f"Dynamo skips it: {skip.reason}", skip.hint)))
    elif alike := next((facts for facts in breaks if facts.caller == name), None):
        reason = (
            f"Dynamo reuses what it compiled for another `{name}`, whose call is a graph break"
            f" ({_location(alike)}): what removes that break compiles this one too"
        )
    elif skipping := _skipping_call(breaks, log):
        reason = (
            f"after {skipping} Dynamo skips all modules of torch's own that are compiled by themselves;"
            " compile a module of your own that holds it, or call `torch.compiler.reset()` before"
        )
    elif limit := next(filter(_is_of_wrapper, log.listener.losses), None):
        cause = "recompile limit"
        reason = (
            "all modules of torch's own that are compiled by themselves share one limit of compilations"
            f" ({limit_words(limit.message)}), and it was reached; raise it, or compile a module of your own"
            " that holds them"
        )
    else:
        return None
    if compiled_calls:
        reason += f"; {counted(compiled_calls, 'other call')} of it ran compiled"
    return NotCompiled(name, name, cause, reason, CODES[cause], site, eager_calls)


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
