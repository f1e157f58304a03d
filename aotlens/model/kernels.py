"""The report's records of generated code: kernels, their configurations and their texts."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Phase, Span

KernelKind = Literal["generated", "library"]

UnfusedCode = Literal[
    "library",
    "order",
    "indexing",
    "little",
    "sizes",
    "tiling",
    "steps",
    "scan",
    "limit",
    "memory",
    "template",
    "user-kernel",
    "foreach",
    "spills",
    "device",
    "disabled",
    "other",
]
"""Why two kernels that share a value are not fused."""

UNFUSED_REASONS: dict[UnfusedCode, str] = {
    "library": "one of them is a library call, which takes no other work in",
    "order": "a third kernel runs between them: it needs the first, and the second needs it",
    "indexing": "they go over it in different orders, or over different parts of it",
    "little": "they share too little memory traffic",
    "sizes": "their loops have different sizes",
    "tiling": "they cut their loops into blocks in different ways",
    "steps": "one reduction in two steps: the second starts when the first has finished everywhere",
    "scan": "a scan that is split over blocks takes no reduction in",
    "limit": "one kernel of both would be larger than Inductor makes them",
    "memory": "one kernel of both would keep more values alive at once, far from where they are used",
    "template": "the template of a matrix product or of attention does not take this in",
    "user-kernel": "one of them is your own Triton kernel, which does not take this in",
    "foreach": "lists of tensors that are computed together must match one by one",
    "spills": "one kernel of both would spill registers",
    "device": "they run on different devices",
    "disabled": "fusion is turned off here",
    "other": "Inductor's scheduler decides so",
}


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
    """Bytes that a thread's spills store and load, as the assembler counts them: each instruction once, also
    one in a loop."""
    shared_bytes: int
    """Shared memory of a block."""
    grid: tuple[int, int, int] | None
    """Blocks of this launch; None where their number depends on data."""
    occupancy: float
    """The share of a multiprocessor's possible warps that it runs; 0 where the launch fails."""
    limit: str
    """The limit of the occupancy: `warps`, `blocks`, `registers`, `shared memory`."""
    waves: float | None
    """How often the grid fills the GPU: below 1 a part of it is idle; None where the grid is None."""
    grid_of_example: bool = False
    """Whether sizes are symbolic, and grid and waves are for the example's sizes."""


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The fastest configuration of a kernel, measured on a device."""

    blocks: dict[str, int]
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel in one of its intermediate languages, or as machine code."""

    language: str
    """One of `KERNEL_LANGUAGES`."""
    text: str


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """A value in memory that a kernel reads or writes."""

    value: str
    """The node of the value; empty for one that only the generated code has."""
    written: bool
    bytes: int
    """Each element once, at the example's sizes."""
    sector_bytes: int
    """The bytes that the memory moves for them, in sectors of 32 bytes: more where they are scattered."""
    span: Span | None = None
    """The expression that reads or writes it; None where the user has no line for it."""
    is_gather: bool = False
    """Whether data selects the elements, so that `sector_bytes` is an upper limit."""


@dataclass(frozen=True, slots=True)
class KernelShare:
    """The part of a kernel that one expression accounts for; the shares of a kernel add up to all of it."""

    span: Span
    bytes_read: int
    bytes_written: int
    flops: int
    floor_us: float


@dataclass(frozen=True, slots=True)
class Unfused:
    """An earlier kernel that shares a value with this one, and why they are not fused."""

    kernel: str
    call: int
    """The number of the call in the same phase, as `Kernel.call`."""
    value: str
    """The node of the largest value that both access; empty for one that only the generated code has."""
    bytes: int
    """The bytes of all values that both access, as this one reads them."""
    is_produced: bool
    """Whether the earlier one writes what this one reads; else both read it."""
    code: UnfusedCode
    reason: str
    """In the user's words."""
    torch: str = ""
    """The reason of torch's scheduler; empty where it was not asked, for example about library calls."""
    span: Span | None = None
    """The expression of the value; None where the user has no line for it."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated kernel or library call."""

    name: str
    phase: Phase
    target: str
    """The target of the code: `cpu`, `sm_90`."""
    source: str
    nodes: tuple[str, ...]
    spans: tuple[Span, ...]
    """The user's expressions that it computes; for a backward kernel, those that it differentiates; line by
    line, the line with the largest share first, where shares are known."""
    bytes_read: int | None = None
    """From memory by this launch, each element once, at the example's sizes; None where it is not known."""
    bytes_written: int | None = None
    flops: int | None = None
    """A fused multiply-add is two; index arithmetic does not count. None where it is not known: in a kernel
    of the user's, and in a library's operator without a formula."""
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    time_us: float | None = None
    """Measured, median; None when it was not run."""
    kind: KernelKind = "generated"
    """`library` for a call of cuBLAS, cuDNN, attention or torch's own kernels."""
    configs: tuple[KernelConfig, ...] = ()
    """The kernel's configurations, the chosen one first; empty for a CPU and for library calls."""
    texts: tuple[KernelText, ...] = ()
    """Texts of the chosen configuration; of repeated launches only the first one has them."""
    bytes_moved: int | None = None
    """`bytes_read` and `bytes_written` together."""
    floor_us: float | None = None
    """The least time on the target, an estimate by its peak bandwidth and arithmetic; None where unknown."""
    bound: str = ""
    """The limit that determines the floor: `memory` or `arithmetic`."""
    error: str = ""
    """Why the kernel could not be compiled; empty where it was."""
    call: int = 0
    """The number of the call in its phase, from 0, among those for the same target."""
    intensity: float | None = None
    """Operations for each byte moved; None where either is not known, or no byte is moved."""
    accesses: tuple[KernelAccess, ...] = ()
    shares: tuple[KernelShare, ...] = ()
    """By expression; empty where the user has no line for it, and for a CPU."""
    unfused: tuple[Unfused, ...] = ()
    """Earlier kernels that it shares values with, the costliest first."""
    layer: str = ""
    """The layer of the user's model that it belongs to, `blocks.3`; empty outside of layers."""
    added: str = ""
    """The stage that added it and the reason, where no expression of the user's causes it."""
    ran: KernelChoice | None = None
    """The configuration that the GPU chose by running all of them; None where it did not run, and for a
    library."""
    ending_us: tuple[float, ...] = ()
    """Measured beside `time_us`: the final sums of the results of its blocks, one by one."""


@dataclass(frozen=True, slots=True)
class LineCost:
    """One line of the user's code on a GPU: its shares of all kernels, forward and backward together."""

    span: Span
    """The widest expression of the line."""
    kernels_forward: int
    """Kernels and library calls of the forward, or of inference, that compute a part of it."""
    kernels_backward: int
    bytes_read: int
    bytes_written: int
    flops: int
    floor_us: float
    """An estimate."""
    time_us: float | None = None
    """Measured; a kernel of several lines is divided among them as its floor is.  None when not all ran."""

    @property
    def launches(self) -> int:
        return self.kernels_forward + self.kernels_backward


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """All kernels of one phase on a GPU."""

    phase: Phase
    target: str
    generated: int
    """Launches of generated kernels."""
    library: int
    """Library calls."""
    bytes_read: int
    bytes_written: int
    flops: int
    floor_us: float
    """The sum over the kernels, an estimate."""
    time_us: float | None = None
    """The sum of the measured times; None when not all ran."""
    unknown: int = 0
    """Calls without any known cost, which the sums lack."""
    unknown_flops: int = 0
    """Calls with known bytes and unknown operations; the operations, and the floor by arithmetic, lack
    them."""
