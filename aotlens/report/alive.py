"""What is alive at the peak, folded over layers, and how its lifetime is told.

Invariant: standard library only; the folds account for every byte of the peak.
"""

import re
from collections.abc import Callable

from aotlens.report.fold import Fold, fold, in_layer
from aotlens.report.places import line_text, text_of, texts
from aotlens.report.records import LiveValue, Memory, Span

_NUMBERED = re.compile(r"_\d+$")


def alive_folds(memory: Memory) -> list[Fold[LiveValue]]:
    """What is alive at the peak, identical layers as one, the largest total first."""
    text = texts()
    folds = fold(memory.live_at_peak, lambda value: alive_label(value, text), alive_same)
    return sorted(folds, key=lambda group: -total_bytes(group))


def total_bytes(group: Fold[LiveValue]) -> int:
    return sum(value.bytes for value in group.items)


def alive_same(value: LiveValue) -> tuple[object, ...]:
    """What identical layers share: all that a row shows."""
    return value.bytes, value.kind, value.span, value.made_in, value.last_in, value.last_span


def alive_label(value: LiveValue, text: Callable[[Span], str] = text_of) -> str:
    """`blocks.3: gelu in self.mlp(x)`, or the user's name where it names a tensor of theirs."""
    operator = _NUMBERED.sub("", value.node)
    if value.name and value.kind in ("gradient", "result"):
        return value.name
    said = text(value.span) if value.span else ""
    return in_layer(value.layer, f"{operator} in {said}" if said else value.name or operator)


def lifetime(value: LiveValue, home: str | None) -> str:
    """`from the forward until the backward of line 24`; `home` is the file whose lines need no name."""
    if value.kind == "working memory":
        return "while the operator runs"
    if value.last_in is None:
        return f"from the {value.made_in} on, the caller's"
    line = line_text(value.last_span, home)
    if value.last_in == value.made_in:
        return f"in the {value.made_in}" + (f", until {line}" if line else "")
    return f"from the {value.made_in} until the {value.last_in}" + (f" of {line}" if line else "")
