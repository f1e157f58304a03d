"""What goes to the interpreter's process and comes back: plain data and CPU tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from aotlens.errors import UserError

FindingKind = Literal["out of bounds", "failed assertion", "not interpreted", "library"]

MESSAGES: dict[FindingKind, str] = {
    "out of bounds": "reaches outside of its arguments' memory",
    "failed assertion": "fails an assertion",
    "not interpreted": "could not be interpreted",
    "library": "a call between the kernels has no twin on the CPU that works",
}


@dataclass(frozen=True, slots=True)
class LaunchLocation:
    """A launch in a graph's wrapper."""

    kernel: str
    """Empty for a line of the wrapper that is no launch."""
    occurrence: int = 0
    """How many launches of the same kernel came before."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a graph did not run to its end."""

    kind: FindingKind
    location: LaunchLocation
    line: str
    """The kernel's own line, or the wrapper's."""
    message: str


@dataclass(frozen=True, slots=True)
class Job:
    """One graph to be run once."""

    source: str
    """The wrapper that calls the kernels, with their sources inside."""
    constants: Mapping[str, torch.Tensor]
    """By the name that the wrapper has for each."""
    inputs: tuple[Any, ...]
    random_state: torch.Tensor
    """Of the CPU's generator, for draws of library calls."""
    seed: int
    """The first of the seeds that kernels draw with; the others follow it."""
    own_blocks: bool = False
    """Keep the kernels' own block sizes: slower, since the interpreter pays for each program."""
    return_buffers: bool = False
    """Send back what each launch wrote."""
    precomputed: Mapping[LaunchLocation, Mapping[int, torch.Tensor]] = field(default_factory=dict)
    """Launches that are not made: what the arguments at these positions hold instead afterwards."""


@dataclass(frozen=True, slots=True)
class UserLaunch:
    """One launch of a kernel of the user's, outside of any graph."""

    kernel: str
    source: str
    """Of the kernel, and of what it takes from its module."""
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Launched:
    written: Mapping[str, torch.Tensor]
    """By the name of an argument, all bytes of its changed storage."""
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel that ran."""

    location: LaunchLocation
    programs: int
    blocks: tuple[tuple[str, int], ...]
    """Block sizes that it ran with."""
    buffers: tuple[tuple[int, torch.Tensor], ...] = ()
    """What it changed, by the position of the argument; only when asked for."""


@dataclass(frozen=True, slots=True)
class RandomNumbersOfSeed:
    """The numbers that kernels drew from one seed."""

    kind: Literal["rand", "randn", "randint"]
    offsets: torch.Tensor
    """Positions in the tensor that the program draws, flat and in row-major order."""
    values: torch.Tensor
    repeats: int
    """How many were drawn more than once, by several kernels or in both directions of one graph."""
    agrees: bool
    """Whether every number that was drawn again came out the same."""


@dataclass(frozen=True, slots=True)
class ViewOfInput:
    """A result that lies in the memory of an input."""

    input: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Answer:
    outputs: tuple[Any, ...]
    """Tensors, numbers, None, or `Inside`."""
    written: Mapping[int, torch.Tensor]
    """By the position of an input, all bytes of its changed storage."""
    random_state: torch.Tensor
    launches: tuple[Launch, ...]
    seeds: int
    """How many the wrapper drew."""
    random_numbers: Mapping[int, RandomNumbersOfSeed]
    """By the position of the seed."""
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator that only the program's own process has: one that the user registered."""

    name: str
    """`namespace.operator.overload`."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    result: Any
    args: tuple[Any, ...]
    """As the operator left them, and the keyword arguments beside."""
    kwargs: Mapping[str, Any]
    error: str = ""


class NotInterpretedError(UserError):
    """A kernel that the interpreter cannot run, which says nothing about the kernel."""


class KernelFaultError(RuntimeError):
    """A kernel that does what no kernel may do, whatever the values are."""
