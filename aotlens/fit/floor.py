"""The memory that edits seldom lower: what exists during the whole step, and what one call needs.

Invariant: the peak of the step is at least this.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from aotlens.model.fit import FitAllocation, FitMoment, KindBytes, kinds_of, peak_of

__all__ = ["UndividedCall", "floor_of", "is_cast", "is_undivided"]

TRAINING_ARGUMENTS = ("train", "training")
"""The names that operators of batch norm give the argument that asks for statistics of the batch."""


@dataclass(frozen=True, slots=True)
class UndividedCall:
    """A call of an operator that parts of a batch cannot replace, with all that it reads and writes."""

    moment: int
    """A moment at which all of that exists."""
    at: FitMoment
    storages: tuple[Any, ...]
    """The lifetimes of what it reads, writes and allocates; that of its result is the last."""
    is_cast: bool = False
    """True for a cast, which counts only where its result becomes the gradient of a parameter."""


def is_cast(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True for a cast to another dtype, as autocast's backward casts the gradients of parameters."""
    name = getattr(getattr(func, "_schema", None), "name", "")
    dtype = kwargs.get("dtype")
    return name == "aten::_to_copy" and dtype is not None and dtype != args[0].dtype


def is_undivided(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], node_name: str) -> bool:
    """Return True for batch norm with statistics of the batch, and for a gradient that is added to another.

    `node_name` is the name of the autograd node that calls it itself, not in a hook:
    `torch::autograd::AccumulateGrad`.
    """
    schema = getattr(func, "_schema", None)
    if schema is None:
        return False
    if node_name.endswith("AccumulateGrad"):
        return schema.name in ("aten::add", "aten::add_")
    if "batch_norm" not in schema.name:
        return False
    passed = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | dict(kwargs)
    values = {argument.name: argument.default_value for argument in schema.arguments} | passed
    return any(values.get(name) is True for name in TRAINING_ARGUMENTS)


def floor_of(
    allocations: Sequence[FitAllocation],
    calls: Iterable[UndividedCall] = (),
    allocation_of: Mapping[int, FitAllocation] = MappingProxyType({}),
) -> tuple[tuple[KindBytes, ...], FitMoment | None]:
    """Return what exists at once, by kind, and the call that needs it.

    Without such a call these are the most gradients at once; `allocation_of` has the allocations by the `id`
    of the lifetimes.
    """
    lasting = [each for each in allocations if _is_lasting(each)]
    gradients = [each for each in allocations if each.kind == "gradient"]
    moment, _ = peak_of(gradients)
    floor = [*lasting, *(each for each in gradients if each.is_alive_at(moment))]
    needed_at: FitMoment | None = None
    for call in calls:
        operands = [allocation_of.get(id(storage)) for storage in call.storages]
        if call.is_cast and (operands[-1] is None or operands[-1].kind != "gradient"):
            continue
        needed = {id(each): each for each in lasting}
        needed |= {id(each): each for each in gradients if each.is_alive_at(call.moment)}
        needed |= {id(each): each for each in operands if each is not None}
        if sum(each.bytes for each in needed.values()) > sum(each.bytes for each in floor):
            floor, needed_at = list(needed.values()), call.at
    return kinds_of(floor), needed_at


def _is_lasting(allocation: FitAllocation) -> bool:
    return allocation.made < 0 and allocation.freed is None and allocation.kind != "gradient"
