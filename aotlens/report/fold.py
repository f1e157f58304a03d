"""Identical layers shown as one row: `h.0–11.attn.weight`, ×12.

Invariant: folding loses nothing.  Every item is in exactly one fold, folds stand in the order of their first
items, and a layer that differs in anything shown stands apart.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

_LAYER = re.compile(r"(?<=[.\[])\d+")
"""The number of a layer in a name: `h.3.attn`, `layers[3].weight`."""


@dataclass(frozen=True, slots=True)
class Fold(Generic[Item]):
    """Items that differ only in the number of their layer."""

    label: str
    """Their common name with the range of layers: `h.0–11.attn.weight`."""
    items: tuple[Item, ...]

    @property
    def first(self) -> Item:
        """The item that stands for all."""
        return self.items[0]

    @property
    def times(self) -> str:
        """`×12`, or nothing for a single item."""
        return f"×{len(self.items)}" if len(self.items) > 1 else ""


def fold(
    items: Iterable[Item], name: Callable[[Item], str], same: Callable[[Item], Hashable]
) -> tuple[Fold[Item], ...]:
    """Items with the same name but for the first layer number, and equal in `same`, become one fold."""
    groups: dict[Hashable, tuple[str, list[int], list[Item]]] = {}
    for item in items:
        own = name(item)
        # Most names of a list are met once: what is found in one is not worth keeping for the next.
        layer = _LAYER.search(own)
        pattern = f"{own[: layer.start()]}*{own[layer.end() :]}" if layer else own
        _, numbers, alike = groups.setdefault((pattern, same(item)), (own, [], []))
        alike.append(item)
        if layer:
            numbers.append(int(layer.group()))
    return tuple(Fold(_label(own, numbers), tuple(alike)) for own, numbers, alike in groups.values())


def in_layer(layer: str | None, label: str) -> str:
    """A label that folds over layers: `blocks.3: gelu in self.mlp(x)`; as it is outside of a layer."""
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
