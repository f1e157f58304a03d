"""`torch._foreach_…_` on lists in which a tensor that is written is met again.

Invariant: eager goes through the lists from front to back, so that a later tensor sees what was written to an
earlier one; where that makes a difference, each place of the lists is a call of its own.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from aotlens.capture.places import overlap
from aotlens.capture.storage import Tracked
from aotlens.capture.tape import Tape
from aotlens.errors import UnsupportedError
from aotlens.model.report import Span
from aotlens.torch_api.fake import FakeTensor

FOREACH = "aten._foreach_"
"""In eager such an operator raises the version counters by single writes; as one operator it raises none."""


def in_turns(tape: Tape, args: tuple[Any, ...], targets: list[Any]) -> list[tuple[Any, ...]]:
    """The arguments of one call per written tensor; empty where one call for all does the same."""
    if len(targets) < 2 or not _meet_again(tape, args, targets):
        return []
    return [tuple(_at(arg, place, len(targets)) for arg in args) for place in range(len(targets))]


def note_histories_between(tape: Tape, targets: list[Any]) -> None:
    """Note the views that have the history of their own write: call it when all are written.

    Eager raises all versions first and then makes the histories, one after the other; so autograd takes such
    a view for up to date, although what it shows is written again behind it.

    Raises:
        UnsupportedError: it is an argument, which the caller would see with another history.
    """
    if not torch.is_grad_enabled():
        return
    for at, target in enumerate(targets):
        given = tape.originals.get(id(target), target)
        if given._base is None or not given._base.requires_grad:
            continue
        known = tape.tracked(target)
        later = [other for other in targets[at + 1 :] if tape.tracked(other).storage is known.storage]
        if any(overlap(target, other) for other in later):
            tape.between.append((known, known.storage.version, tape.span))
            if given is not target or known.chain in known.storage.joined:
                _refuse(tape.span)


def refuse_histories_between(tape: Tape, results: Iterable[Any]) -> None:
    """Raise UnsupportedError where such a view, or a view of it, is among the results of the function."""
    for result in results if tape.between else ():
        if not isinstance(result, torch.Tensor) or not result.requires_grad:
            continue
        shown = tape.tracked(result)
        for known, version, span in tape.between:
            is_of_it = shown.chain[: len(known.chain)] == known.chain and shown.storage is known.storage
            if is_of_it and known.storage.version == version:
                _refuse(span)


def _refuse(span: Span | None) -> None:
    raise UnsupportedError(
        "a `torch._foreach_` operator that writes twice to the memory of one view with a gradient, which is "
        "then seen from outside",
        span,
        "return the tensor under it, write to each memory once in a list, or call the operators one by one",
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
