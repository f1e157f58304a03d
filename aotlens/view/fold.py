"""Rows of identical layers folded into one, `h.0–11.attn.weight` ×12, also for values alive at the peak."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aotlens.model.spans import line_text, text_of, texts
from aotlens.view.names import without_number
from aotlens.view.quantities import multiplied

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import LiveValue, Memory, Span

Item = TypeVar("Item")


class HasBytes(Protocol):
    """A saved, recomputed or live value."""

    @property
    def bytes(self) -> int: ...


Value = TypeVar("Value", bound=HasBytes)

_LAYER = re.compile(r"(?<=[.\[])\d+")
"""The number of a layer in a name, as in `h.3.attn` and `layers[3].weight`."""


@dataclass(frozen=True, slots=True)
class Fold(Generic[Item]):
    """Items that differ only in the number of their layer."""

    label: str
    """Their common name with the range of layers: `h.0–11.attn.weight`."""
    items: tuple[Item, ...]

    @property
    def first(self) -> Item:
        """The item that is shown for all of them."""
        return self.items[0]

    @property
    def times(self) -> str:
        """Return `×12`; empty for a single item."""
        return multiplied(len(self.items))


def fold(
    items: Iterable[Item], name: Callable[[Item], str], same: Callable[[Item], Hashable]
) -> tuple[Fold[Item], ...]:
    """Items with the same name but for the first layer number, and equal in `same`, become one fold."""
    groups: dict[Hashable, tuple[str, list[int], list[Item]]] = {}
    for item in items:
        own = name(item)
        # Most names of a list occur once, so results are not cached.
        layer = _LAYER.search(own)
        pattern = f"{own[: layer.start()]}*{own[layer.end() :]}" if layer else own
        _, numbers, alike = groups.setdefault((pattern, same(item)), (own, [], []))
        alike.append(item)
        if layer:
            numbers.append(int(layer.group()))
    return tuple(Fold(_label(own, numbers), tuple(alike)) for own, numbers, alike in groups.values())


def in_layer(layer: str | None, label: str) -> str:
    """Return a label that folds over layers, `blocks.3: gelu in self.mlp(x)`; unchanged outside of a
    layer."""
    return f"{layer}: {label}" if layer else label


def _label(name: str, layers: list[int]) -> str:
    numbers = sorted(set(layers))
    return _LAYER.sub(_ranges(numbers), name, count=1) if len(numbers) > 1 else name


def _ranges(numbers: list[int]) -> str:
    """`0–3,5` for 0, 1, 2, 3, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def alive_folds(memory: Memory) -> list[Fold[LiveValue]]:
    """Return the values alive at the peak, identical layers folded, the largest total first."""
    text = texts()
    folds = fold(memory.live_at_peak, lambda value: alive_label(value, text), alive_key)
    return sorted(folds, key=lambda group: -total_bytes(group))


def total_bytes(group: Fold[Value]) -> int:
    """Return the bytes of all items, which a folded row shows."""
    return sum(value.bytes for value in group.items)


def alive_key(value: LiveValue) -> tuple[object, ...]:
    """Return the fields that the values of identical layers share: all that a row shows."""
    return value.bytes, value.kind, value.span, value.made_in, value.last_in, value.last_span


def alive_label(value: LiveValue, text: Callable[[Span], str] = text_of) -> str:
    """Return `blocks.3: gelu in self.mlp(x)`, or the user's name for the tensor."""
    operator = without_number(value.node)
    if value.name and value.kind in ("gradient", "result"):
        return value.name
    expression = text(value.span) if value.span else ""
    return in_layer(value.layer, f"{operator} in {expression}" if expression else value.name or operator)


def lifetime(value: LiveValue, home: str | None) -> str:
    """Return `from the forward until the backward of line 24`; lines of the file `home` come without its
    name."""
    if value.kind == "working memory":
        return "while the operator runs"
    if value.last_in is None:
        return f"from the {value.made_in} on, owned by the caller"
    line = line_text(value.last_span, home)
    if value.last_in == value.made_in:
        return f"in the {value.made_in}" + (f", until {line}" if line else "")
    return f"from the {value.made_in} until the {value.last_in}" + (f" of {line}" if line else "")


FUSED = "as if no operators were fused"
