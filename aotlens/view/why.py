"""What a script loses to Dynamo, as a list of problems: code in eager first, then by the seconds lost.

Invariant: every graph break and every recompilation of the report is in exactly one problem.

| problem | seconds | what it stands for |
|---|---|---|
| code in eager | of what was thrown away | a break that ends the graph; the limit; calls without a graph |
| graph break | of what is compiled behind it | one expression |
| recompilations | of all of them | one value that changed, however often |
| constant | | a size that was a symbol until the code asked for its value |
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from aotlens.model.dynamo import (
    Break,
    CacheUse,
    Compilation,
    CompileSeconds,
    Dynamo,
    DynamoFunction,
    PreventedFusion,
    Specialisation,
    StartedProcesses,
)
from aotlens.model.eager import NotCompiled
from aotlens.model.source import Span
from aotlens.model.spans import location
from aotlens.view.quantities import counted, human_bytes, human_seconds
from aotlens.view.recompiled_values import (
    EDITED_KINDS,
    GRAD_MODE,
    RecompiledValue,
    duration_words,
    failed_guard_words,
    limit_words,
    recompiled_values,
    value_hint,
    value_words,
)

__all__ = [
    "COMPILED_AT",
    "CONSTANTS",
    "UNENDED",
    "Problem",
    "cache_words",
    "compilation_name",
    "dynamo_counts",
    "dynamo_summary",
    "miss_words",
    "other_constants",
    "problems",
    "process_words",
    "unended_compilations",
]

ProblemKind = Literal["code in eager", "graph break", "recompilations", "constant"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix."""

    kind: ProblemKind
    title: str
    function: str
    span: Span | None
    text: str
    """The expression; empty where there is none."""
    facts: tuple[str, ...]
    """Sentences: the reason, then the cost."""
    hint: str
    seconds: float
    """Compile time that the fix saves; 0 where that is not known."""
    unended: int = 0
    """Compilations of it that did not end."""
    is_normal: bool = False
    """True if it happens once in most programs: the second size of a dimension recompiles."""
    target: str = ""
    """The subject of a fix: the expression of a break, or the name of the value."""
    code: str = ""
    """Of the diagnostic that says the same."""
    is_editable: bool = False
    """True if there are edits to try (`aotlens why --try-fixes`)."""

    @property
    def duration(self) -> str:
        """Return its seconds, and how many of its compilations did not end; empty where it took none."""
        return duration_words(self.seconds, self.unended)

    @property
    def full_title(self) -> str:
        """Return the title with the function, unless it names the function itself."""
        is_named = re.search(rf"(?<!\w){re.escape(self.function)}(?!\w)", self.title) is not None
        return self.title if is_named else f"{self.title} in {self.function}"


def problems(dynamo: Dynamo) -> tuple[Problem, ...]:
    """Return all problems, the most important first."""
    unordered = [problem for function in dynamo.functions for problem in _of_function(function)]
    unordered += map(_of_calls, dynamo.calls_in_eager)
    return tuple(sorted(unordered, key=_order))


ORDER: tuple[ProblemKind, ...] = ("code in eager", "graph break", "recompilations", "constant")


def _order(problem: Problem) -> tuple[object, ...]:
    in_eager = problem.kind == "code in eager"
    return (not in_eager, problem.is_normal, -problem.seconds, ORDER.index(problem.kind))


def _of_function(function: DynamoFunction) -> Iterator[Problem]:
    yield from (_of_break(function, entry) for entry in function.breaks)
    name = function.qualname
    values = recompiled_values(function)
    for index, value in enumerate(values):
        yield _of_value(function, value, is_limit=function.limit_hit and index == 0)
    if function.limit_hit and not values:
        facts = (limit_words(function),)
        yield Problem("code in eager", "recompile limit", name, function.span, "", facts, "", 0, code="AL405")
    for skipped in function.skipped:
        if skipped.is_loss:
            facts = (f"Dynamo skips it: {skipped.reason}",)
            what, span, hint = skipped.name, skipped.span, skipped.hint
            yield Problem("code in eager", what, name, span, "", facts, hint, 0, code="AL409")
    for constant in function.specialisations:
        if constant.kind == "compared":
            title = f"{constant.name} = {constant.value}"
            line, text, reasons = constant.span, constant.text, (constant.reason,)
            yield Problem("constant", title, name, line, text, reasons, "", 0, code="AL408")


def _of_calls(record: NotCompiled) -> Problem:
    title, facts = f"{counted(record.calls, 'call')} in eager", (record.reason,)
    return Problem("code in eager", title, record.name, record.span, "", facts, "", 0, code=record.code)


SPLIT_GRAPHS = 2
"""The graphs on both sides of a break that splits one function."""
EFFECTS = {
    "graph split": "the graph is split here",
    "rest in eager": "the rest of the function runs in eager",
    "function in eager": "the whole function runs in eager",
    "error": "the call raises an error, because of fullgraph=True",
}


def _of_break(function: DynamoFunction, entry: Break) -> Problem:
    in_eager = entry.effect != "graph split"
    reason = f"{entry.reason} [{entry.code}]" if entry.code else entry.reason
    cost = EFFECTS[entry.effect]
    others = [name for name in entry.splits if name != function.qualname]
    if others:
        cost += f"; it splits {', '.join(others)} too"
    if entry.tensors:
        crosses = "crosses" if entry.tensors == 1 else "cross"
        cost += f"; {counted(entry.tensors, 'tensor')} ({human_bytes(entry.bytes)}) {crosses} it on each call"
    captured = () if entry.fails_fullgraph else ("under fullgraph=True it is no error, but captured",)
    if entry.graphs > SPLIT_GRAPHS:
        cost += f"; {entry.graphs} graphs begin or end here"
    prevented = _fusion_words(entry.fusions)
    inside = _related_words(entry)
    return Problem(
        "code in eager" if in_eager else "graph break",
        "graph break",
        function.qualname,
        entry.span,
        entry.text,
        (reason, cost, *captured, *prevented, *inside),
        entry.hint,
        _seconds_behind(function, entry),
        target=entry.text,
        code="AL405" if in_eager else "AL406",
        is_editable=True,
    )


_MOST_RELATED = 3


def _related_words(entry: Break) -> tuple[str, ...]:
    """Return the lines of libraries at which Dynamo stops below the expression, the first ones only."""
    shown = [f"{location(related.span)}: {related.message}" for related in entry.related[:_MOST_RELATED]]
    hidden = len(entry.related) - len(shown)
    return (*shown, *([f"and at {counted(hidden, 'more line')}"] if hidden else []))


_MOST_FUSIONS = 2


def _fusion_words(fusions: Sequence[PreventedFusion]) -> tuple[str, ...]:
    """`without it, relu (line 19) and div (line 21) could share a kernel`."""
    if not fusions:
        return ()
    pairs = [
        f"{_operator_words(fusion.producer, fusion.producer_span)} and"
        f" {_operator_words(fusion.consumer, fusion.consumer_span)}"
        for fusion in fusions
    ]
    shown = ", or ".join(pairs[:_MOST_FUSIONS])
    hidden = len(pairs) - _MOST_FUSIONS
    more = f", and {counted(hidden, 'more pair')}" if hidden > 0 else ""
    return (f"without it, {shown} could share a kernel{more}",)


def _operator_words(name: str, span: Span | None) -> str:
    return name if span is None else f"{name} (line {span.line})"


def _seconds_behind(function: DynamoFunction, entry: Break) -> float:
    """Return the seconds of the first compilation of the code behind a break."""
    part = f"after line {entry.span.line}"
    behind = (
        compilation
        for compilation in function.compilations
        if compilation.part == part and compilation.cause is None
    )
    return sum(compilation.seconds.total for compilation in behind)


def _of_value(function: DynamoFunction, value: RecompiledValue, is_limit: bool) -> Problem:
    count = len(value.compilations)
    title = f"{value_words(value)}: {counted(count, 'recompilation')}"
    facts = [failed_guard_words(value)]
    if is_limit:
        facts.insert(0, limit_words(function))
    elif value.is_normal and value.name == GRAD_MODE:
        facts.append("with and without gradients, a function has a compilation each")
    elif value.is_normal and value.is_training:
        facts.append("a module has a compilation for training and one for evaluation")
    elif value.is_normal:
        facts.append("Dynamo made it a symbol, so that further values share one compilation")
    hint = "" if value.is_normal and not is_limit else value_hint(function, value)
    return Problem(
        "code in eager" if is_limit else "recompilations",
        title,
        function.qualname,
        value.span or value.causes[0].call or function.span,
        "",
        tuple(facts),
        hint,
        value.seconds,
        value.unended,
        value.is_normal and not is_limit,
        value.name,
        "AL407",
        value.kind in EDITED_KINDS,
    )


def dynamo_counts(dynamo: Dynamo) -> tuple[int, int, int]:
    """Graph breaks, recompilations, and sizes that were compared."""
    constants = sum(
        entry.kind == "compared" for function in dynamo.functions for entry in function.specialisations
    )
    return len(dynamo.breaks), len(dynamo.recompilations), constants


CONSTANTS = ("Constants", "values to which the compiled code is specialised")
"""The heading of their section, and what they are."""


COMPILED_AT = ("Compiled at", "the lines that pass a function to `torch.compile`")
"""The heading of their section, and what they are."""


def other_constants(dynamo: Dynamo) -> tuple[Specialisation, ...]:
    """Return the constants that are no problem: sizes of 0 and 1, numbers, what a library's code requires."""
    constants = (entry for function in dynamo.functions for entry in function.specialisations)
    return tuple(dict.fromkeys(entry for entry in constants if entry.kind != "compared"))


def dynamo_summary(dynamo: Dynamo) -> str:
    """`2 graph breaks, 7 recompilations; compiling took 4.2 s`."""
    breaks, recompilations, constants = dynamo_counts(dynamo)
    parts = [counted(breaks, "graph break"), counted(recompilations, "recompilation")]
    if constants:
        parts.append(counted(constants, "constant size"))
    if not any(function.compilations for function in dynamo.functions):
        return f"{', '.join(parts)}; nothing was compiled"
    words = [f"compiling took {human_seconds(dynamo.compile_seconds.total)}"]
    unended = len(unended_compilations(dynamo))
    words += [f"{counted(unended, 'compilation')} did not end"] if unended else []
    return f"{', '.join(parts)}; {', '.join(words)}"


UNENDED = ("Did not end", "the log stops while these are compiled")
"""The heading of their section, and what they are."""


def unended_compilations(dynamo: Dynamo) -> tuple[tuple[DynamoFunction, Compilation], ...]:
    """Return the compilations that did not end, with their functions."""
    return tuple(
        (function, compilation)
        for function in dynamo.functions
        for compilation in function.compilations
        if not compilation.has_ended
    )


def compilation_name(function: DynamoFunction, compilation: Compilation) -> str:
    """`Net.forward after line 14 (2/1)`."""
    part = f" {compilation.part}" if compilation.part else ""
    return f"{function.qualname}{part} ({compilation.id})"


def process_words(started: StartedProcesses) -> str:
    """`4 workers of a data loader`, `2 processes of train`."""
    match started.kind:
        case "data loader":
            return f"{counted(started.count, 'worker')} of a data loader"
        case "multiprocessing":
            processes = "1 process" if started.count == 1 else f"{started.count} processes"
            return f"{processes} of `{started.name}`"
        case "command":
            times = "" if started.count == 1 else f", {started.count} times"
            return f"`{started.name}`{times}"
        case "fork":
            return f"{counted(started.count, 'fork')} of this process"


def miss_words(seconds: CompileSeconds) -> tuple[str, ...]:
    """`2 misses of Inductor: no such graph was compiled before`; equal ones once."""
    counts: dict[tuple[str, str, str], int] = {}
    for lookup in seconds.lookups:
        if lookup.cause:
            key = lookup.cache, lookup.outcome, lookup.cause
            counts[key] = counts.get(key, 0) + 1
    rows = []
    for (cache, outcome, cause), count in sorted(counts.items(), key=lambda row: -row[1]):
        what = "miss" if outcome == "miss" else "graph not cacheable"
        several = "misses" if outcome == "miss" else "graphs not cacheable"
        rows.append(f"{count} {what if count == 1 else several} of {cache}: {cause}")
    return tuple(rows)


def cache_words(cache: CacheUse) -> str:
    """`Inductor cache: 2 hits, 1 miss, 1 not cacheable`."""
    misses = "1 miss" if cache.misses == 1 else f"{cache.misses or 'no'} misses"
    parts = [counted(cache.hits, "hit"), misses]
    parts += [f"{cache.bypasses} not cacheable"] if cache.bypasses else []
    return f"{cache.name} cache: {', '.join(parts)}"
