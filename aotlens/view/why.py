"""What a script loses to Dynamo, as a list of problems: code in eager first, then by the seconds lost.

Invariant: every graph break and every recompilation of the report is in exactly one problem.

| problem | seconds | what it stands for |
|---|---|---|
| code in eager | of what was thrown away | a break that Dynamo cannot resume from, the recompile limit |
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
    Cause,
    CauseKind,
    Compilation,
    CompileSeconds,
    Dynamo,
    DynamoFunction,
    PreventedFusion,
    Specialisation,
    StartedProcesses,
)
from aotlens.model.source import Span
from aotlens.model.spans import location
from aotlens.view.quantities import counted, human_bytes, human_seconds

__all__ = [
    "CONSTANTS",
    "Problem",
    "RecompiledValue",
    "cache_words",
    "dynamo_counts",
    "dynamo_summary",
    "miss_words",
    "problems",
    "process_words",
    "recompiled_values",
    "value_words",
]

GRAD_MODE = "grad mode"

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
    is_normal: bool = False
    """True if it happens once in most programs: the second size of a dimension recompiles."""
    target: str = ""
    """The subject of a fix: the expression of a break, or the name of the value."""
    code: str = ""
    """Of the diagnostic that says the same."""
    is_editable: bool = False
    """True if there are edits to try (`aotlens why --try-fixes`)."""

    @property
    def full_title(self) -> str:
        """Return the title with the function, unless it names the function itself."""
        is_named = re.search(rf"(?<!\w){re.escape(self.function)}(?!\w)", self.title) is not None
        return self.title if is_named else f"{self.title} in {self.function}"


@dataclass(frozen=True, slots=True)
class RecompiledValue:
    """All recompilations of a function that one value caused."""

    kind: CauseKind
    name: str
    span: Span | None
    compilations: tuple[Compilation, ...]

    @property
    def causes(self) -> tuple[Cause, ...]:
        return tuple(entry.cause for entry in self.compilations if entry.cause is not None)

    @property
    def seconds(self) -> float:
        return sum(entry.seconds.total for entry in self.compilations)

    @property
    def is_normal(self) -> bool:
        """Return True if Dynamo has merely learnt that a size or number varies, or has met `no_grad`."""
        is_expected = self.kind in ("size", "number") or self.name == GRAD_MODE
        return is_expected and len(self.compilations) == 1


def recompiled_values(function: DynamoFunction) -> tuple[RecompiledValue, ...]:
    """Return the recompilations of a function by the value that changed, the costliest first."""
    groups: dict[tuple[CauseKind, str], list[Compilation]] = {}
    for entry in function.recompilations:
        if entry.cause is not None:
            groups.setdefault((entry.cause.kind, entry.cause.name), []).append(entry)
    values = []
    for (kind, name), entries in groups.items():
        spans = (entry.cause.span for entry in entries if entry.cause is not None)
        span = next((span for span in spans if span is not None), None)
        values.append(RecompiledValue(kind, name, span, tuple(entries)))
    return tuple(sorted(values, key=lambda value: -value.seconds))


def problems(dynamo: Dynamo) -> tuple[Problem, ...]:
    """Return all problems, the most important first."""
    unordered = [problem for function in dynamo.functions for problem in _of_function(function)]
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
        reason = "it was recompiled too often, and calls that need another graph run in eager"
        title = "recompile limit"
        yield Problem("code in eager", title, name, function.span, "", (reason,), "", 0, code="AL405")
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


EFFECTS = {
    "graph split": "the graph is split here",
    "rest in eager": "the rest of the function runs in eager",
    "function in eager": "the whole function runs in eager",
    "error": "an error under fullgraph=True",
}


def _of_break(function: DynamoFunction, entry: Break) -> Problem:
    in_eager = entry.effect in ("rest in eager", "function in eager")
    reason = f"{entry.reason} [{entry.code}]" if entry.code else entry.reason
    cost = EFFECTS[entry.effect]
    others = [name for name in entry.splits if name != function.qualname]
    if others:
        cost += f"; it splits {', '.join(others)} too"
    if entry.tensors:
        crosses = "crosses" if entry.tensors == 1 else "cross"
        cost += f"; {counted(entry.tensors, 'tensor')} ({human_bytes(entry.bytes)}) {crosses} it on each call"
    prevented = _fusion_words(entry.fusions)
    inside = tuple(f"{location(related.span)}: {related.message}" for related in entry.related)
    return Problem(
        "code in eager" if in_eager else "graph break",
        "graph break",
        function.qualname,
        entry.span,
        entry.text,
        (reason, cost, *prevented, *inside),
        entry.hint,
        _seconds_behind(function, entry),
        target=entry.text,
        code="AL405" if in_eager else "AL406",
        is_editable=True,
    )


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
    facts = [_values_line(value)]
    if is_limit:
        facts.insert(0, "the recompile limit is reached: calls that need another graph run in eager")
    elif value.is_normal and value.name == GRAD_MODE:
        facts.append("with and without gradients, a function has a compilation each")
    elif value.is_normal:
        facts.append("Dynamo made it a symbol, so that further values share one compilation")
    hint = "" if value.is_normal and not is_limit else value_hint(value)
    return Problem(
        "code in eager" if is_limit else "recompilations",
        title,
        function.qualname,
        value.span or value.causes[0].call or function.span,
        "",
        tuple(facts),
        hint,
        value.seconds,
        value.is_normal,
        value.name,
        "AL407",
        value.kind in EDITED_KINDS,
    )


def value_words(value: RecompiledValue) -> str:
    """Return the value's change: `self.step increases`, `x.shape[0] changes`."""
    causes = value.causes
    pairs = [(_number(cause.old), _number(cause.new)) for cause in causes]
    if value.kind == "mode":
        return f"{value.name} changes"
    if len(causes) > 1 and value.kind in ("number", "length", "size"):
        known = [(old, new) for old, new in pairs if old is not None and new is not None]
        if len(known) == len(pairs) and all(old < new for old, new in known):
            return f"{value.name} increases"
        if len(known) == len(pairs) and all(old > new for old, new in known):
            return f"{value.name} decreases"
    words = {
        "type": "has another type",
        "object": "is another object",
        "keys": "comes and goes",
        "freed": "was freed",
        "backend": "is another object",
    }
    return f"{value.name} {words.get(value.kind, 'changes')}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_MOST_VALUES = 5


def _values_line(value: RecompiledValue) -> str:
    """`self.step == 0 failed with 1, then 2, 3, …`"""
    first = value.causes[0]
    news = list(dict.fromkeys(cause.new for cause in value.causes if cause.new))
    shown = ", ".join(news[:_MOST_VALUES]) + (", …" if len(news) > _MOST_VALUES else "")
    return f"the guard `{first.guard}` failed" + (f" with {shown}" if shown else "")


EDITED_KINDS: frozenset[CauseKind] = frozenset({"number", "size", "type", "length"})
"""Of the values for which `aotlens/fixes` has a rule."""

VALUE_HINTS: dict[CauseKind, str] = {
    "size": "`torch._dynamo.mark_dynamic(tensor, dim)` before the first call, or `dynamic=True`",
    "size relation": (
        "compare sizes outside of the compiled function; each outcome is a compilation of its own"
    ),
    "rank": "reshape to one number of dimensions before the call, or accept one compilation per rank",
    "stride": "call `.contiguous()` before the compiled function",
    "dtype": "cast to one dtype before the call, or accept one compilation per dtype",
    "device": "accept one compilation per device",
    "requires_grad": "pass tensors that all require grad, or none; otherwise accept both compilations",
    "number": "pass a 0-d tensor (`torch.tensor(value)`) instead of the number",
    "value": "accept one compilation per value, or compile one function per value",
    "length": "preallocate a tensor and pass the index, instead of a growing container",
    "type": "pass one type: a neutral tensor instead of None; otherwise accept both compilations",
    "object": "create the object once, outside of the calls",
    "keys": "pass the same keys on every call",
    "mode": "accept one compilation per mode, such as training and evaluation",
    "freed": "keep the object alive as long as the compiled function",
    "backend": "pass one backend object to every `torch.compile`",
}
COUNTER_HINT = "keep it in a tensor, as a buffer, and add in place: `{name}.add_(1)`"
ATTRIBUTE_HINT = "keep it in a 0-d tensor that is changed in place: a number on an object is a constant"


def value_hint(value: RecompiledValue) -> str:
    """Return what to do about a value that recompiles."""
    if value.kind == "number" and "." in value.name:
        words = value_words(value)
        return COUNTER_HINT.format(name=value.name) if words.endswith("increases") else ATTRIBUTE_HINT
    if value.kind == "number" and value.name.startswith("the value of"):
        return "remove the graph break before it: the number is an argument of what follows"
    return VALUE_HINTS.get(value.kind, "")


def dynamo_counts(dynamo: Dynamo) -> tuple[int, int, int]:
    """Graph breaks, recompilations, and sizes that were compared."""
    constants = sum(
        entry.kind == "compared" for function in dynamo.functions for entry in function.specialisations
    )
    return len(dynamo.breaks), len(dynamo.recompilations), constants


CONSTANTS = ("Constants", "values to which the compiled code is specialised")
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
    seconds = dynamo.compile_seconds.total
    return f"{', '.join(parts)}; compiling took {human_seconds(seconds)}"


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


def most_changed(dynamo: Dynamo) -> Sequence[RecompiledValue]:
    """Return the values that recompile, of all functions, the costliest first."""
    values = (value for function in dynamo.functions for value in recompiled_values(function))
    return sorted(values, key=lambda value: -value.seconds)
