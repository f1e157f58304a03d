"""What each input and output of a graph means, with the user's own name for it."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Slot:
    """What one input or output of a graph means."""

    name: str
    """The user's own name for it; our name where the user has none."""


@dataclass(frozen=True, slots=True)
class IndexedSlot(Slot):
    """One of several."""

    index: int
    """Position among the function's flat inputs (parameters and buffers first), or among its flat outputs."""


@dataclass(frozen=True, slots=True)
class TensorSlot(IndexedSlot):
    """A tensor, or one inner tensor of a subclass."""

    inner: tuple[str, ...] = ()
    """The attributes that lead from the subclass to the inner tensor; empty for a plain tensor."""


@dataclass(frozen=True, slots=True)
class ModuleSlot(IndexedSlot):
    """A tensor that the captured module holds."""

    fqn: str
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserInput(TensorSlot):
    """A leaf of the call's arguments."""

    is_static: bool = False
    """Whether the caller promises the same tensor for each call (`mark_static_address`)."""


class Parameter(ModuleSlot):
    """A parameter of the captured module."""


class Buffer(ModuleSlot):
    """A buffer of the captured module."""


class SymIntInput(IndexedSlot):
    """A size that the caller passes as a number."""


class SyntheticBase(IndexedSlot):
    """The one tensor that replaces several overlapping inputs in the graph if one of them is written to.

    Its index is after those of the flat inputs.
    """


class FreeTensor(IndexedSlot):
    """A tensor that the function reads from outside its arguments.

    Its index is after those of the arguments: before synthetic bases if the text can look it up, else after
    them.
    """


FlatInput = UserInput | Parameter | Buffer | SymIntInput | SyntheticBase | FreeTensor


@dataclass(frozen=True, slots=True)
class Tangent(Slot):
    """The tangent of one differentiable graph output, by the name of that."""

    inner: tuple[str, ...] = ()


class SavedInput(Slot):
    """A saved value, as the backward receives it."""


class RngState(Slot):
    """Seed or offset of a device's RNG state when the forward starts: `fwd_seed` or `fwd_base_offset`."""


class BackwardRngState(Slot):
    """Seed or offset of a device's RNG state when the backward starts: `bwd_seed` or `bwd_base_offset`."""


@dataclass(frozen=True, slots=True)
class CurrentInput(IndexedSlot):
    """A flat input with its value when the backward runs, including writes since the forward."""

    is_saved: bool = False
    """Whether autograd saved it: a write between forward and backward is then an error, as in eager."""


GraphInput = FlatInput | Tangent | SavedInput | RngState | BackwardRngState | CurrentInput
RNG_STATES = (RngState, BackwardRngState)
BACKWARD_INPUTS = (Tangent, CurrentInput, BackwardRngState)
"""The kinds of input that only the backward has."""


class UserOutput(TensorSlot):
    """A leaf of the user's output."""


class MutatedInput(TensorSlot):
    """The new value of a flat input, which the wrapper writes back."""


class IntermediateBase(TensorSlot):
    """A hidden output from which the wrapper regenerates several views; its index is among these."""


class DataSize(Slot):
    """A data-dependent size that the wrapper needs to regenerate views, by the name of its symbol."""


class SavedForBackward(Slot):
    """A value that passes from forward to backward."""


class Gradient(TensorSlot):
    """The gradient of one flat input."""


class LeafGradient(TensorSlot):
    """The gradient of an output that is a leaf because the function made it require grad."""


@dataclass(frozen=True, slots=True)
class RngOffset(Slot):
    """The RNG offset after the forward."""

    name: str = "new_fwd_offset"


@dataclass(frozen=True, slots=True)
class BackwardRngOffset(Slot):
    """The RNG offset after the backward."""

    name: str = "new_bwd_offset"


GRADIENTS = (Gradient, LeafGradient)
BACKWARD_OUTPUTS = (*GRADIENTS, BackwardRngOffset)
"""The kinds of output that only the backward has."""
GraphOutput = (
    UserOutput
    | MutatedInput
    | IntermediateBase
    | DataSize
    | SavedForBackward
    | Gradient
    | LeafGradient
    | RngOffset
    | BackwardRngOffset
)
DIFFERENTIABLE_OUTPUTS = (UserOutput, MutatedInput, IntermediateBase, DataSize)
"""The kinds of output that pass through autograd to the wrapper."""


def stays_in_place(slot: Any) -> bool:
    """Return True if a graph input has the same address on every call."""
    return isinstance(slot, (Parameter, Buffer)) or (isinstance(slot, UserInput) and slot.is_static)


def inner_slot(slot: Any, path: tuple[str, ...]) -> Any:
    """Return the slot of one inner tensor of a subclass, named as the user would: `x.a`."""
    return replace(slot, name=".".join((slot.name, *path)), inner=path) if path else slot


def outer_slot(slot: Any) -> Any:
    """Return the slot of the subclass that a tensor is part of; the slot itself for a plain tensor."""
    inner = "".join(f".{name}" for name in getattr(slot, "inner", ()))
    return replace(slot, name=slot.name.removesuffix(inner), inner=()) if inner else slot


@dataclass(frozen=True, slots=True, eq=False)
class OuterObject:
    """A container that exists before the wrapper builds the output."""

    name: str
    """An expression of the wrapper: `args[0]`; or the name to bind `object` to."""
    object: Any = None
    """None if the expression alone yields it."""
