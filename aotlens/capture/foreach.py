"""`torch._foreach_…_` on lists in which a tensor that is written is met again.

Invariant: eager goes through the lists from front to back, so that a later tensor sees what was written to an
earlier one; where that makes a difference, each place of the lists is a call of its own.
"""

from collections.abc import Iterator
from typing import Any

import torch

from aotlens.capture.storage import Tracked
from aotlens.capture.tape import Tape
from aotlens.errors import UnsupportedError
from aotlens.torch_api import FakeTensor

FOREACH = "aten._foreach_"
"""In eager such an operator raises the version counters by single writes; as one operator it raises none."""


def in_turns(tape: Tape, args: tuple[Any, ...], targets: list[Any]) -> list[tuple[Any, ...]]:
    """The arguments of one call per written tensor; empty where one call for all does the same.

    Raises:
        UnsupportedError: a view with a gradient is written, and what it looks at is written again.
    """
    if len(targets) < 2 or not _meet_again(tape, args, targets):
        return []
    _refuse_history_between(tape, args, targets)
    return [tuple(_at(arg, place, len(targets)) for arg in args) for place in range(len(targets))]


def _refuse_history_between(tape: Tape, args: tuple[Any, ...], targets: list[Any]) -> None:
    """Eager raises all versions first and then asks for histories: such a view keeps the one between."""
    listed = [item for arg in args for item in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    if not torch.is_grad_enabled() or not any(getattr(item, "requires_grad", False) for item in listed):
        return
    storages = [id(tape.tracked(target).storage) for target in targets]
    for target, storage in zip(targets, storages, strict=True):
        if target._base is not None and storages.count(storage) > 1:
            raise UnsupportedError(
                "a `torch._foreach_` operator that writes twice to the memory of one view with a gradient",
                tape.span,
                "write to each memory once in a list, or call the operators one by one",
            )


def _at(arg: Any, place: int, count: int) -> Any:
    """A list that has an item per written tensor, cut to one item; all others as they are."""
    per_target = isinstance(arg, (list, tuple)) and len(arg) == count
    return [arg[place]] if per_target else arg


def _meet_again(tape: Tape, args: tuple[Any, ...], targets: list[Any]) -> bool:
    """Whether a written tensor's memory is also at another place of a list."""
    places: dict[int, set[int]] = {}
    for place, known in _tracked(tape, args):
        places.setdefault(id(known.storage), set()).add(place)
    return any(len(places[id(tape.tracked(target).storage)]) > 1 for target in targets)


def _tracked(tape: Tape, args: tuple[Any, ...]) -> Iterator[tuple[int, Tracked]]:
    for arg in args:
        for place, item in enumerate(arg if isinstance(arg, (list, tuple)) else ()):
            if type(item) is FakeTensor:
                yield place, tape.tracked(item)
