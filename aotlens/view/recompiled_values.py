"""Recompilations by the value that changed: what changed, how often, what it cost, and what to do about it.

Invariant: every recompilation of a function belongs to exactly one value.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from aotlens.model.dynamo import Cause, CauseKind, Compilation, Dynamo, DynamoFunction
from aotlens.model.source import Span
from aotlens.model.spans import location
from aotlens.view.quantities import counted, human_seconds

__all__ = [
    "EDITED_KINDS",
    "GRAD_MODE",
    "RecompiledValue",
    "duration_words",
    "failed_guard_words",
    "limit_words",
    "most_changed",
    "recompiled_values",
    "value_hint",
    "value_words",
]

GRAD_MODE = "grad mode"


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
    def unended(self) -> int:
        """Return how many of the compilations did not end before the log does."""
        return sum(not entry.has_ended for entry in self.compilations)

    @property
    def is_normal(self) -> bool:
        """Return True if Dynamo has merely learnt that a size or number varies, or has met another mode."""
        is_expected = self.kind in ("size", "number") or self.name == GRAD_MODE or self.is_training
        return is_expected and len(self.compilations) == 1

    @property
    def is_training(self) -> bool:
        """Return True for the mode of a module, `train()` or `eval()`."""
        return self.name.endswith(".training")


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
_MOST_FORMS = 3


_CONSTANT = re.compile(r"'[^']*'|-?\b\d[\w.]*")


def failed_guard_words(value: RecompiledValue) -> str:
    """`the guard x.shape[0] == 2 failed with 3, 4, …, then 2 <= x.shape[0] failed with 1`."""
    forms: dict[str, list[Cause]] = {}
    for cause in value.causes:
        forms.setdefault(_CONSTANT.sub("#", cause.guard), []).append(cause)
    shown = [_failed_with(causes) for causes in forms.values()][:_MOST_FORMS]
    return f"the guard {', then '.join(shown)}"


def _failed_with(causes: Sequence[Cause]) -> str:
    """Return the first of the guards that differ in their numbers only, and the values that failed them."""
    news = list(dict.fromkeys(cause.new for cause in causes if cause.new))
    shown = ", ".join(news[:_MOST_VALUES]) + (", …" if len(news) > _MOST_VALUES else "")
    return f"`{causes[0].guard}` failed" + (f" with {shown}" if shown else "")


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
ATTRIBUTE_TYPE_HINT = "set it before the first call, and keep its type; otherwise accept both compilations"
ATTRIBUTE_HINT = "keep it in a 0-d tensor that is changed in place: a number on an object is a constant"


def value_hint(function: DynamoFunction, value: RecompiledValue) -> str:
    """Return what to do about a value that recompiles."""
    if value.name.startswith("the value of"):
        return "remove the graph break before it: the value is an argument of what follows"
    if value.kind == "number" and "." in value.name:
        words = value_words(value)
        return COUNTER_HINT.format(name=value.name) if words.endswith("increases") else ATTRIBUTE_HINT
    if value.kind == "type" and "." in value.name:
        return ATTRIBUTE_TYPE_HINT
    hint = VALUE_HINTS.get(value.kind, "")
    if value.kind == "size" and len(function.compiled_at) == 1:
        hint += f" at {location(function.compiled_at[0])}, where it is compiled"
    return hint


def limit_words(function: DynamoFunction) -> str:
    """Return what the recompile limit, which the function has reached, does to its calls."""
    count = function.eager_calls
    if count is None:
        return "the recompile limit is reached: calls that need another graph run in eager, an unknown number"
    each = "it needs" if count == 1 else "each needs"
    return f"the recompile limit is reached: {counted(count, 'call')} ran in eager, as {each} another graph"


def duration_words(seconds: float, unended: int) -> str:
    """`1.2 s`, `1.2 s, 1 compilation did not end`; empty for neither."""
    ended = [human_seconds(seconds)] if seconds else []
    return ", ".join([*ended, *([f"{counted(unended, 'compilation')} did not end"] if unended else [])])


def most_changed(dynamo: Dynamo) -> Sequence[RecompiledValue]:
    """Return the values that recompile, of all functions, the costliest first."""
    values = (value for function in dynamo.functions for value in recompiled_values(function))
    return sorted(values, key=lambda value: -value.seconds)
