"""Saved values that differ between two traces of a target, for every front end. Standard library only."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from aotlens.model.report import SavedValue, Target

__all__ = ["SavedChange", "saved_changes"]


@dataclass(frozen=True, slots=True)
class SavedChange:
    """A value that only one side saves, or that one side saves more of."""

    value: SavedValue
    """The value of the new trace; the old one's where the new trace does not save it."""
    change_bytes: int
    """New less old."""
    is_gone: bool = False


def saved_changes(
    old: Target, new: Target, partners: Mapping[str, str] | None = None
) -> tuple[SavedChange, ...]:
    """Return the changes of the new trace in its order, then the values that it does not save.

    Values are equal if `partners` maps the new node to the old one; without it, if the user's name and shape
    are equal, since lines move with edits.
    """
    if partners is None:
        before, after = _grouped(old, _name_and_shape), _grouped(new, _name_and_shape)
    else:
        known = partners
        before = _grouped(old, lambda value: value.node)
        after = _grouped(new, lambda value: known.get(value.node, ("new", value.node)))
    rows = []
    for key, values in after.items():
        change = sum(saved_value.bytes for saved_value in values) - sum(
            saved_value.bytes for saved_value in before.get(key, ())
        )
        if change:
            rows.append(SavedChange(values[0], change))
    for key, values in before.items():
        size = sum(saved_value.bytes for saved_value in values)
        if key not in after and size:
            rows.append(SavedChange(values[0], -size, is_gone=True))
    return tuple(rows)


def _name_and_shape(value: SavedValue) -> Hashable:
    return value.name or value.node, value.tensor.short()


def _grouped(target: Target, key: Callable[[SavedValue], Hashable]) -> dict[Hashable, list[SavedValue]]:
    groups: dict[Hashable, list[SavedValue]] = {}
    for value in target.partition.saved if target.partition is not None else ():
        groups.setdefault(key(value), []).append(value)
    return groups
