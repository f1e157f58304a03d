"""What the report says of generated code: kernels, their configurations and their texts."""

from dataclasses import dataclass
from typing import Literal

from aotlens.report.partition_records import Phase
from aotlens.report.source_records import Span

KernelKind = Literal["generated", "library"]


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """A kernel with one choice of block sizes, compiled."""

    blocks: dict[str, int]
    """Block sizes by the kernel's own names: `XBLOCK`, `R0_BLOCK`."""
    warps: int
    stages: int
    """Depth of software pipelining."""
    registers: int
    """Of a thread."""
    frame_bytes: int
    """Local memory of a thread: spills, and arrays that are indexed."""
    spill_bytes: int
    """Bytes that a thread's spills store and load, as the assembler counts them."""
    shared_bytes: int
    """Shared memory of a block."""
    grid: tuple[int, int, int] | None
    """Blocks of this launch; None under symbolic sizes."""
    occupancy: float
    """Of the warps that a multiprocessor could hold, those that it does; 0 where the launch fails."""
    limit: str
    """What keeps the occupancy from being higher: `warps`, `blocks`, `registers`, `shared memory`."""
    waves: float | None
    """How often the grid fills the GPU: below 1 a part of it is idle; None under symbolic sizes."""


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel in one of the languages on its way to the machine."""

    language: str
    """`ttir`, `ttgir`, `llir`, `ptx`, `sass`."""
    text: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated kernel or library call."""

    name: str
    phase: Phase
    target: str
    """What it was generated for: `cpu`, `sm_90`."""
    source: str
    nodes: tuple[str, ...]
    spans: tuple[Span, ...]
    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    time_us: float | None = None
    """Measured, median; None when it was not run."""
    kind: KernelKind = "generated"
    """`library` for a call of cuBLAS, cuDNN, attention or torch's own kernels."""
    configs: tuple[KernelConfig, ...] = ()
    """What the kernel was compiled with, the chosen one first; empty for a CPU and for library calls."""
    texts: tuple[KernelText, ...] = ()
    """Of the chosen configuration; a kernel that is launched again has them at its first launch."""
    bytes_moved: int | None = None
    """Read and written by this launch, at the example's sizes; None where nothing is known."""
    floor_us: float | None = None
    """The least time on the target, an estimate by its peak bandwidth and arithmetic; None where unknown."""
    bound: str = ""
    """What the floor is set by: `memory` or `arithmetic`."""
    error: str = ""
    """Why the kernel could not be compiled; empty where it was."""
