"""Arguments of one call that lie on one storage, where an operator that is not taken apart writes to some.

Invariant: arguments that have no element in common are given and written one by one; those that overlap are
views of one copy of the storage, so that the operator sees there what it writes, or they are refused.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from aotlens.capture.places import overlap
from aotlens.capture.storage import has_symbols
from aotlens.capture.tape import Tape
from aotlens.errors import UnsupportedError

Named = tuple[str, Any, bool]
"""An argument's name, a tensor of it, and whether the operator writes to it."""


def overlapping(tape: Tape, call: str, given: Iterable[Named]) -> list[Any]:
    """The written tensors that have elements in common with others that are written.

    Raises:
        UnsupportedError: one that is only read overlaps one that is written: the operator would read a copy.
    """
    found: list[Any] = []
    before: list[Named] = []
    for name, tensor, written in given:
        for other_name, other, other_written in before:
            if not (written or other_written) or not _meet(tape, tensor, other):
                continue
            if not (written and other_written):
                _refuse(tape, call, (other_name, name) if other_written else (name, other_name))
            found += [one for one in (other, tensor) if not any(one is known for known in found)]
        before.append((name, tensor, written))
    return found


def _refuse(tape: Tape, call: str, names: tuple[str, str]) -> None:
    raise UnsupportedError(
        f"{call} that writes to `{names[0]}` and reads `{names[1]}`, which overlap in memory",
        tape.span,
        "clone one of them before the call",
    )


def _meet(tape: Tape, left: Any, right: Any) -> bool:
    if tape.tracked(left).storage is not tape.tracked(right).storage:
        return False
    if not (has_symbols(left) or has_symbols(right)):
        return overlap(left, right)
    (first, end), (start, stop) = _bytes(left), _bytes(right)
    return not (guard_or_false(end <= start) or guard_or_false(stop <= first))


def _bytes(tensor: Any) -> tuple[Any, Any]:
    """The first byte that a tensor shows, and the first one behind it; sizes of none count as one."""
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset()
    return first * tensor.element_size(), (first + sum(steps) + 1) * tensor.element_size()


def tensors_of(value: Any) -> list[Any]:
    """The tensors of one argument."""
    listed = value if isinstance(value, (list, tuple)) else (value,)
    return [one for one in listed if isinstance(one, torch.Tensor)]
