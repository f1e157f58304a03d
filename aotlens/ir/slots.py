"""What each input and output of a graph means, with the user's own name for it."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class UserInput:
    """A leaf of the call's arguments."""

    name: str
    index: int
    """Position among the flat inputs (parameters and buffers first)."""
    inner: tuple[str, ...] = ()
    is_static: bool = False
    """Whether the caller promises the same tensor for each call (`mark_static_address`)."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the captured module."""

    name: str
    index: int
    fqn: str
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of the captured module."""

    name: str
    index: int
    fqn: str
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SymIntInput:
    """A size that the caller passes as a number."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class SyntheticBase:
    """The one tensor that replaces several overlapping inputs in the graph if one of them is written to."""

    name: str
    index: int
    """Position after the flat inputs."""


@dataclass(frozen=True, slots=True)
class FreeTensor:
    """A tensor that the function reads from outside its arguments."""

    name: str
    index: int
    """Position after the arguments: before synthetic bases if the text can look it up, else after them."""


FlatInput = UserInput | Parameter | Buffer | SymIntInput | SyntheticBase | FreeTensor


@dataclass(frozen=True, slots=True)
class Tangent:
    """The tangent of one differentiable graph output."""

    name: str
    """Name of the output."""
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedInput:
    """A saved value, as the backward receives it."""

    name: str


@dataclass(frozen=True, slots=True)
class RngState:
    """Seed or offset of a device's RNG state when the forward starts."""

    name: str
    """`fwd_seed` or `fwd_base_offset`."""


@dataclass(frozen=True, slots=True)
class BackwardRngState:
    """Seed or offset of a device's RNG state when the backward starts."""

    name: str
    """`bwd_seed` or `bwd_base_offset`."""


@dataclass(frozen=True, slots=True)
class CurrentInput:
    """A flat input with its value when the backward runs, including writes since the forward."""

    name: str
    index: int
    """Of the flat input."""
    is_saved: bool = False
    """Whether autograd saved it: a write between forward and backward is then an error, as in eager."""


GraphInput = FlatInput | Tangent | SavedInput | RngState | BackwardRngState | CurrentInput
RNG_STATES = (RngState, BackwardRngState)
BACKWARD_INPUTS = (Tangent, CurrentInput, BackwardRngState)
"""The kinds of input that only the backward has."""


@dataclass(frozen=True, slots=True)
class UserOutput:
    """A leaf of the user's output."""

    name: str
    index: int
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MutatedInput:
    """The new value of an input that the wrapper writes back."""

    name: str
    index: int
    """Of the flat input."""
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IntermediateBase:
    """A hidden output from which the wrapper regenerates several views."""

    name: str
    index: int
    """Among the intermediate bases."""
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataSize:
    """A data-dependent size that the wrapper needs to regenerate views."""

    name: str
    """Its symbol."""


@dataclass(frozen=True, slots=True)
class SavedForBackward:
    """A value that passes from forward to backward."""

    name: str


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of one flat input."""

    name: str
    index: int
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeafGradient:
    """The gradient of an output that is a leaf because the function made it require grad."""

    name: str
    index: int
    """Index of the output."""
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RngOffset:
    """The RNG offset after the forward."""

    name: str = "new_fwd_offset"


@dataclass(frozen=True, slots=True)
class BackwardRngOffset:
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
