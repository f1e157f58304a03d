"""The report's records of whether CUDA graphs can record a target. Standard library only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Phase, Site

CudaGraphVerdict = Literal["recorded", "in_parts", "not_recorded"]
BlockerEffect = Literal["prevents", "splits", "repeats", "beside"]
BlockerKind = Literal[
    "written_argument",
    "resized_storage",
    "object_input",
    "second_device",
    "cpu_input",
    "cpu_operator",
    "device_copy",
    "host_read",
    "host_check",
    "waiting_kernel",
    "data_size",
    "mask_write",
    "branch",
    "loop",
    "unsupported_operator",
    "sparse",
    "effect",
    "generator",
    "symbolic_size",
    "wrapper_step",
]


@dataclass(frozen=True, slots=True)
class CudaGraphBlocker:
    """One reason why a part of the target does not run from a CUDA graph, or not from a single one."""

    kind: BlockerKind
    effect: BlockerEffect
    """`prevents`: this graph is not recorded at all; `splits`: it is recorded in parts around this;
    `repeats`: recorded again for each new value; `beside`: runs outside of the recording on each call."""
    phase: Phase
    what: str
    """The input's name, the operator, or the wrapper's step."""
    reason: str
    """The reason, in the user's words."""
    advice: str
    """What to write instead; empty where nothing need change."""
    sites: tuple[Site, ...] = ()
    """The user's expressions; empty where the compiler added it."""
    operators: int = 1
    """How many operators of the same expression this applies to; `what` is the first."""


@dataclass(frozen=True, slots=True)
class CudaGraph:
    """Whether the target's graphs can be recorded as CUDA graphs and replayed, as `reduce-overhead` does."""

    verdict: CudaGraphVerdict
    """The worst verdict of its phases."""
    phases: dict[str, CudaGraphVerdict]
    blockers: tuple[CudaGraphBlocker, ...] = ()
    """All of them, in program order, the forward's first."""
