"""The listener's facts as the report's records.

Invariant: every break belongs to one function, and every compilation to the function whose code it is;
nothing is counted twice.
"""

from collections.abc import Iterator, Mapping, Sequence

from aotlens.capture.provenance.frames import is_first_party_file, is_user_file
from aotlens.dynamo.break_messages import break_reason
from aotlens.dynamo.breaks import CAPTURED_WHOLE, BreakFacts, enclosing_qualname
from aotlens.dynamo.compile_time import FIRST_RUN, OTHER, Clock
from aotlens.dynamo.facts import CompilationFacts, FunctionFacts, MeasuredGuards
from aotlens.dynamo.graph_edges import EdgeOperator, user_line
from aotlens.dynamo.hints import Library, break_hint
from aotlens.dynamo.listener import FunctionKey, Listener
from aotlens.dynamo.skips import skip_of
from aotlens.dynamo.spans import definition_at, expression_text, statement_span, user_span
from aotlens.dynamo.user_names import user_name
from aotlens.model.dynamo import (
    Break,
    CacheUse,
    Compilation,
    CompileSeconds,
    Dynamo,
    DynamoFunction,
    DynamoGuard,
    LineSeconds,
    PreventedFusion,
    Seconds,
    Skipped,
    Specialisation,
    SpecialisationKind,
)
from aotlens.model.report import AFTER, Target
from aotlens.model.source import Span
from aotlens.torch_api.caches import dynamo_cache_counts

__all__ = ["dynamo_record", "hint_at", "reason_at"]

MOST_LINES = 100
"""The most user lines with Dynamo's time, the costliest first."""

DYNAMO_PHASES = ("Dynamo", "guards")


def dynamo_record(listener: Listener, targets: Sequence[Target] = ()) -> Dynamo | None:
    """Return everything that Dynamo did; None where it was not called."""
    by_function = _breaks_by_function(listener)
    functions = tuple(
        _function(facts, listener, by_function.get(key, ()), _target_names(targets))
        for key, facts in listener.functions.items()
    )
    functions = tuple(entry for entry in functions if _has_facts(entry))
    return Dynamo(functions, _compile_seconds(listener)) if functions else None


def _has_facts(function: DynamoFunction) -> bool:
    return bool(function.compilations or function.breaks or function.limit_hit or function.skipped)


def _target_names(targets: Sequence[Target]) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for target in targets:
        if target.graph is not None:
            key = f"{target.graph.frame}/{target.graph.compilation}"
            names[key] = (*names.get(key, ()), target.name)
    return names


def _breaks_by_function(listener: Listener) -> dict[FunctionKey, list[BreakFacts]]:
    """Return the breaks in source order, by the function around the expression."""
    groups: dict[FunctionKey, list[BreakFacts]] = {}
    for facts in sorted(listener.breaks, key=lambda entry: (entry.span.line, entry.span.col)):
        groups.setdefault(_function_around(facts, listener), []).append(facts)
    return groups


def _function_around(facts: BreakFacts, listener: Listener) -> FunctionKey:
    """Return the key of the function around a break, and add the function if Dynamo never began with it.

    Its first line is looked up before its name: a lambda has no definition that `enclosing_qualname` finds.
    """
    file, line = facts.span.file, facts.span.line
    for key, known in listener.functions.items():
        if known.file == file and known.line == line:
            return key
    qualname = enclosing_qualname(facts) or facts.owner.partition(AFTER)[0]
    definition = definition_at(file, line)
    listener.function(file, qualname, definition.line if definition is not None else line)
    return file, qualname


def _function(
    facts: FunctionFacts,
    listener: Listener,
    breaks: Sequence[BreakFacts],
    targets: Mapping[str, tuple[str, ...]],
) -> DynamoFunction:
    """Return the report's record of one function."""
    compilations = tuple(
        _compilation(entry, listener.clock, targets) for entry in facts.compilations.values()
    )
    changed = {entry.cause.name for entry in compilations if entry.cause is not None}
    measured = [entry.nanoseconds for entry in facts.guards.values() if entry.nanoseconds is not None]
    return DynamoFunction(
        name=facts.name,
        qualname=facts.qualname,
        span=statement_span(facts.file, facts.line),
        calls=facts.calls if listener.counts_calls else None,
        compilations=compilations,
        breaks=tuple(_break(entry, listener) for entry in breaks),
        specialisations=tuple(_specialisations(facts, changed)),
        skipped=tuple(_skipped(facts)),
        guards=tuple(row for entry in facts.guards.values() for row in _guards(entry)),
        guard_nanoseconds=sum(measured) if measured else None,
        limit_hit=facts.limit_hit,
        eager_calls=facts.eager_calls if facts.limit_hit and listener.eager_calls_are_exact else None,
        compiled_at=listener.sites.of_function(facts.file, facts.line, facts.name),
    )


def _compilation(
    facts: CompilationFacts, clock: Clock, targets: Mapping[str, tuple[str, ...]]
) -> Compilation:
    phases = clock.of_compilation(facts.id)
    dynamo = sum(phases.get(name, 0.0) for name in DYNAMO_PHASES)
    backend = sum(phases.values()) - dynamo - phases.get(FIRST_RUN, 0.0)
    seconds = Seconds(dynamo, backend, dynamo + backend)
    return Compilation(facts.id, facts.part, targets.get(facts.id, ()), seconds, facts.cause)


def _break(facts: BreakFacts, listener: Listener) -> Break:
    crossing = _crossing(facts, listener)
    return Break(
        span=facts.span,
        text=facts.text,
        code=facts.code,
        reason=reason_at(facts),
        hint=hint_at(facts),
        effect=facts.effect,
        related=facts.related,
        splits=tuple(facts.splits),
        compilations=tuple(facts.compilations),
        graphs=_graphs(facts, listener),
        tensors=len(crossing),
        bytes=sum(crossing.values()),
        fusions=tuple(_fusions(facts, listener)),
        fails_fullgraph=facts.code not in CAPTURED_WHOLE,
    )


def hint_at(facts: BreakFacts) -> str:
    """Return what to do about a break."""
    library = None
    if facts.related:
        is_package = any(is_user_file(line.span.file) for line in facts.related)
        library = Library(is_package, enclosing_qualname(facts) in facts.splits)
    return break_hint(facts.code, facts.text, facts.hint, library, facts.explanation)


def reason_at(facts: BreakFacts) -> str:
    """Return why Dynamo stops, in one sentence."""
    return break_reason(facts.code, facts.what, facts.explanation, in_library=bool(facts.related))


def _crossing(facts: BreakFacts, listener: Listener) -> Mapping[int, int]:
    """Return the tensors that cross the break, from the graph that passes most; eager code after it reads all
    outputs."""
    crossings = listener.crossings
    tables = (
        [crossings.by_graph] if facts.effect == "graph split" else [crossings.by_graph, crossings.returned]
    )
    for table in tables:
        graphs = [table[entry] for entry in facts.compilations if entry in table]
        largest = max(graphs, key=lambda graph: sum(graph.values()), default=None)
        if largest:
            return largest
    return {}


def _fusions(facts: BreakFacts, listener: Listener) -> Iterator[PreventedFusion]:
    """Yield the pairs of operators that the break keeps from fusing, each once for all compilations."""
    unfused = listener.crossings.unfused
    pairs = (pair for entry in facts.compilations for pair in unfused.get(entry, ()))
    yield from dict.fromkeys(
        PreventedFusion(
            producer.name, consumer.name, _span_of_operator(producer), _span_of_operator(consumer)
        )
        for producer, consumer in pairs
    )


def _span_of_operator(edge_operator: EdgeOperator) -> Span | None:
    line = user_line(edge_operator.stack)
    return None if line is None else statement_span(*line)


def _graphs(facts: BreakFacts, listener: Listener) -> int:
    """Count the graphs that end at the break, and those that begin after it."""
    ran = listener.graphs
    before = {ran[entry] for entry in facts.compilations if entry in ran}
    after = {
        (file, function, part)
        for file, function, part in ran.values()
        if any(file == split and part == f"after line {line}" for split, line in facts.lines)
    }
    return len(before | after)


def _specialisations(facts: FunctionFacts, changed: set[str]) -> Iterator[Specialisation]:
    """Yield each specialised value once, except numbers that a recompilation reports."""
    seen: set[object] = set()
    for constant in facts.constants:
        span = user_span(constant.frames)
        name = ", ".join(dict.fromkeys(map(user_name, constant.sources)))
        key = (name, constant.value, span)
        if key in seen:
            continue
        seen.add(key)
        text = "" if span is None else expression_text(span)
        if constant.reason == "0/1":
            reason = (
                f"a size of {constant.value} is always a constant; larger sizes can share one compilation"
            )
            yield Specialisation(name, str(constant.value), "", "0/1", reason, span, text)
        else:
            is_own = is_first_party_file(constant.frames[-1].filename) if constant.frames else True
            who = "the code here holds for" if is_own else "a library's code that is called here holds for"
            reason = f"{who} {constant.value} alone; any other value recompiles"
            kind: SpecialisationKind = "compared" if is_own else "required"
            yield Specialisation(name, str(constant.value), constant.symbol, kind, reason, span, text)
    for name, (value, span) in facts.numbers.items():
        if name not in changed:
            reason = "a Python number is a constant of the compiled code; another value recompiles"
            text = "" if span is None else expression_text(span)
            yield Specialisation(name, repr(value), "", "number", reason, span, text)


def _skipped(facts: FunctionFacts) -> Iterator[Skipped]:
    if any(not entry.part for entry in facts.compilations.values()):
        return  # Dynamo compiled it in another call
    for name, reason, span in facts.skipped:
        words = skip_of(reason)
        if words is not None:
            yield Skipped(name, span, words.reason, words.hint, words.is_loss)


def _guards(measured: MeasuredGuards) -> list[DynamoGuard]:
    """Return the guards by value and line, the most numerous first."""
    rows: dict[tuple[str, Span | None], list[str]] = {}
    for source, code, frames in measured.made:
        rows.setdefault((user_name(source), user_span(frames)), []).append(user_name(code))
    total = sum(map(len, rows.values()))
    share = measured.nanoseconds / total if measured.nanoseconds is not None and total else None
    guards = [
        DynamoGuard(
            next(filter(None, codes), name),
            name,
            span,
            len(codes),
            None if share is None else share * len(codes),
        )
        for (name, span), codes in rows.items()
        if name
    ]
    return sorted(guards, key=lambda guard: -guard.count)


def _compile_seconds(listener: Listener) -> CompileSeconds:
    by_phase = listener.clock.by_phase
    total = sum(by_phase.values())
    lines = sorted(listener.line_seconds.items(), key=lambda row: -row[1])[:MOST_LINES]
    by_line = tuple(
        LineSeconds(statement_span(file, line), seconds) for (file, line), seconds in lines if seconds
    )
    caches = tuple(CacheUse(*counts) for counts in dynamo_cache_counts() if any(counts[1:]))
    attributed = total - by_phase.get(OTHER, 0.0)
    return CompileSeconds(total, attributed, by_phase, by_line, caches, tuple(listener.caches.lookups))
