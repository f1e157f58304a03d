"""Records that go to the interpreter's process and back: plain data and CPU tensors."""

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
    "library": "a call between the kernels has no working CPU counterpart",
}


@dataclass(frozen=True, slots=True)
class LaunchLocation:
    """A launch in a graph's wrapper."""

    kernel: str
    """Empty for a wrapper line that is not a launch."""
    occurrence: int = 0
    """The number of earlier launches of the same kernel."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a graph did not complete."""

    kind: FindingKind
    location: LaunchLocation
    line: str
    """The line of the kernel, or of the wrapper."""
    message: str


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one graph."""

    source: str
    """The wrapper that calls the kernels, including their sources."""
    constants: Mapping[str, torch.Tensor]
    """By the wrapper's name of each."""
    inputs: tuple[Any, ...]
    random_state: torch.Tensor
    """The CPU generator's state, for random numbers of library calls."""
    seed: int
    """The first seed of the kernels; further seeds count up from it."""
    own_blocks: bool = False
    """Whether kernels keep their own block sizes: slower, since the interpreter's cost is per program."""
    return_buffers: bool = False
    """Whether to return what each launch wrote."""
    precomputed: Mapping[LaunchLocation, Mapping[int, torch.Tensor]] = field(default_factory=dict)
    """Launches to skip, with the values that the arguments at these positions hold afterwards."""


@dataclass(frozen=True, slots=True)
class UserLaunch:
    """A launch of a user's kernel, outside of any graph."""

    kernel: str
    source: str
    """The source of the kernel, and of the globals that it uses."""
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UserLaunchResult:
    """The result of a user's launch."""

    written: Mapping[str, torch.Tensor]
    """All bytes of each changed storage, by the argument's name."""
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A kernel launch that ran."""

    location: LaunchLocation
    programs: int
    blocks: tuple[tuple[str, int], ...]
    """The block sizes of the launch."""
    buffers: tuple[tuple[int, torch.Tensor], ...] = ()
    """The values that it changed, by the argument's position; only on request."""


@dataclass(frozen=True, slots=True)
class RandomNumbersOfSeed:
    """The random numbers that kernels generated from one seed."""

    kind: Literal["rand", "randn", "randint"]
    offsets: torch.Tensor
    """Positions in the random tensor, flat and in row-major order."""
    values: torch.Tensor
    repeats: int
    """How many were generated more than once, by several kernels or in both directions of one graph."""
    agrees: bool
    """Whether repeated numbers were always equal."""


@dataclass(frozen=True, slots=True)
class ViewOfInput:
    """An output that is a view of an input's storage."""

    input: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a job."""

    outputs: tuple[Any, ...]
    """Tensors, numbers, None, or `ViewOfInput`."""
    written: Mapping[int, torch.Tensor]
    """All bytes of each changed storage, by the input's position."""
    random_state: torch.Tensor
    launches: tuple[LaunchRecord, ...]
    seeds: int
    """The number of seeds that the wrapper used."""
    random_numbers: Mapping[int, RandomNumbersOfSeed]
    """By the index of the seed."""
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A call of an operator that only the main process has, because the user registered it."""

    name: str
    """`namespace.operator.overload`."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """The result of an operator in the main process."""

    result: Any
    args: tuple[Any, ...]
    """The positional arguments after the call, and the keyword arguments beside them."""
    kwargs: Mapping[str, Any]
    error: str = ""


class NotInterpretedError(UserError):
    """A kernel that the interpreter cannot run, which says nothing about the kernel."""


class KernelFaultError(RuntimeError):
    """A kernel with an out-of-bounds access or a failed assertion."""
