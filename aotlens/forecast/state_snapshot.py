"""Save and restore state that calls change besides tensors: numbers on modules, lists and dicts.

Invariant: `restore` resets a module's plain attributes and these containers to the snapshot, so that a
counter causes no recompilation in a trial of sizes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from aotlens.forecast.recorded_call import RecordedCall

__all__ = ["Snapshot", "snapshot_of"]

PLAIN = (int, float, bool, str, type(None))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state before the first call."""

    attributes: tuple[tuple[nn.Module, str, Any], ...]
    lists: tuple[tuple[list[Any], tuple[Any, ...]], ...]
    dicts: tuple[tuple[dict[Any, Any], dict[Any, Any]], ...]

    def restore(self) -> None:
        """Restore everything."""
        for module, name, value in self.attributes:
            if module.__dict__.get(name) is not value:
                module.__dict__[name] = value
        for items, entries in self.lists:
            items[:] = entries
        for mapping, copy in self.dicts:
            mapping.clear()
            mapping.update(copy)


def snapshot_of(call: RecordedCall) -> Snapshot:
    """Return the state around a call, of its modules and its arguments."""
    modules = [part for module in call.modules for part in module.modules()]
    attributes, values = [], [*call.args, *call.kwargs.values()]
    for module in modules:
        for name, value in module.__dict__.items():
            if name == "training" or name.startswith("_"):
                continue
            if isinstance(value, PLAIN):
                attributes.append((module, name, value))
            values.append(value)
    lists = [(value, tuple(value)) for value in _of_type(values, list)]
    dicts = [(value, dict(value)) for value in _of_type(values, dict)]
    return Snapshot(tuple(attributes), tuple(lists), tuple(dicts))


def _of_type(values: Iterable[Any], kind: type) -> list[Any]:
    return list({id(value): value for value in values if type(value) is kind}.values())
