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
    """Whether the caller says that each call passes the same tensor (`mark_static_address`)."""


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
    """The one tensor that stands in the graph for several overlapping inputs of which one is written."""

    name: str
    index: int
    """Position after the flat inputs."""


@dataclass(frozen=True, slots=True)
class FreeTensor:
    """A tensor that the function reaches without being given it."""

    name: str
    index: int
    """Position after the arguments: before synthetic bases where its place is known, else after them."""


FlatInput = UserInput | Parameter | Buffer | SymIntInput | SyntheticBase | FreeTensor


@dataclass(frozen=True, slots=True)
class Tangent:
    """The gradient that arrives for one differentiable graph output."""

    name: str
    """Of the output that it belongs to."""
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedInput:
    """A value that the forward saved, as the backward receives it."""

    name: str


@dataclass(frozen=True, slots=True)
class RngState:
    """Seed or offset of a device's random generator when the forward starts."""

    name: str
    """`fwd_seed` or `fwd_base_offset`."""


@dataclass(frozen=True, slots=True)
class BackwardRngState:
    """Seed or offset of a device's random generator when the backward starts."""

    name: str
    """`bwd_seed` or `bwd_base_offset`."""


@dataclass(frozen=True, slots=True)
class CurrentInput:
    """A flat input as it is when the backward runs, whatever was written to it since the forward."""

    name: str
    index: int
    """Of the flat input."""
    is_saved: bool = False
    """Whether autograd saved it: a write between the forward and the backward is an error, as in eager."""


GraphInput = FlatInput | Tangent | SavedInput | RngState | BackwardRngState | CurrentInput
RNG_STATES = (RngState, BackwardRngState)
BACKWARD_INPUTS = (Tangent, CurrentInput, BackwardRngState)
"""The kinds of input that the forward does not have."""


@dataclass(frozen=True, slots=True)
class UserOutput:
    """A leaf of the user's result."""

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
    """A hidden output from which the wrapper takes several views."""

    name: str
    index: int
    """Among the intermediate bases."""
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataSize:
    """A size that only the data tells, for the wrapper to make views with."""

    name: str
    """Its symbol."""


@dataclass(frozen=True, slots=True)
class SavedForBackward:
    """A value that goes from forward to backward."""

    name: str


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of one flat input."""

    name: str
    index: int
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeafGradient:
    """The gradient of a result that is a leaf: the function made it require grad itself."""

    name: str
    index: int
    """Of the result."""
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RngOffset:
    """The random generator's offset after the forward's draws."""

    name: str = "new_fwd_offset"


@dataclass(frozen=True, slots=True)
class BackwardRngOffset:
    """The random generator's offset after the backward's draws."""

    name: str = "new_bwd_offset"


GRADIENTS = (Gradient, LeafGradient)
BACKWARD_OUTPUTS = (*GRADIENTS, BackwardRngOffset)
"""The kinds of output that the forward does not have."""
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
"""The kinds of output that go through autograd to the wrapper."""


def stays_in_place(slot: Any) -> bool:
    """Whether a graph input is at the same address on every call."""
    return isinstance(slot, (Parameter, Buffer)) or (isinstance(slot, UserInput) and slot.is_static)


def inner_slot(slot: Any, path: tuple[str, ...]) -> Any:
    """The slot of one tensor inside a wrapper, named as the user would: `x.a`."""
    return replace(slot, name=".".join((slot.name, *path)), inner=path) if path else slot


def outer_slot(slot: Any) -> Any:
    """The slot of the whole that a tensor is part of: itself, where it is inside no wrapper."""
    inner = "".join(f".{name}" for name in getattr(slot, "inner", ()))
    return replace(slot, name=slot.name.removesuffix(inner), inner=()) if inner else slot


@dataclass(frozen=True, slots=True, eq=False)
class OuterObject:
    """An object that is there before the result is put together."""

    name: str
    """An expression of the wrapper's: `args[0]`; or the name to bind `object` to."""
    object: Any = None
    """None where the expression alone leads to it."""
    path: str = ""
    """From there on: `['last']`."""
