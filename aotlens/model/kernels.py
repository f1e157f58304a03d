"""What the report says of generated code: kernels, their configurations and their texts."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.partition import Phase
from aotlens.model.source import Span

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
    "little": "what they share is too little to be worth it",
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

KERNEL_LANGUAGES = ("ttir", "ttgir", "llir", "ptx", "sass")
"""What a kernel becomes after Triton's own language, on its way to the machine."""


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
    """Blocks of this launch; None where only the data tells their number."""
    occupancy: float
    """Of the warps that a multiprocessor could hold, those that it does; 0 where the launch fails."""
    limit: str
    """What keeps the occupancy from being higher: `warps`, `blocks`, `registers`, `shared memory`."""
    waves: float | None
    """How often the grid fills the GPU: below 1 a part of it is idle; None where the grid is."""
    grid_of_example: bool = False
    """Whether sizes are symbolic, and grid and waves those of the example's."""


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The configuration that a device has found the fastest of a kernel's."""

    blocks: dict[str, int]
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel in one of the languages on its way to the machine."""

    language: str
    """One of `KERNEL_LANGUAGES`."""
    text: str


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """A value in memory that a kernel reads, or that it writes."""

    value: str
    """The node whose value it is; empty for one that only the generated code has."""
    written: bool
    bytes: int
    """Each element once, at the example's sizes."""
    sector_bytes: int
    """What the memory moves for them: more where they do not lie side by side, since it moves sectors of 32
    bytes."""
    span: Span | None = None
    """The expression that reads or writes it; None where the user has no line for it."""
    is_gather: bool = False
    """Whether data tells which elements, so that `sector_bytes` is the most that it can be."""


@dataclass(frozen=True, slots=True)
class KernelShare:
    """What one expression has of a kernel: the shares of a kernel are the whole of it."""

    span: Span
    bytes_read: int
    bytes_written: int
    flops: int
    floor_us: float


@dataclass(frozen=True, slots=True)
class Unfused:
    """An earlier kernel that shares a value with this one, and why they are not one kernel."""

    kernel: str
    call: int
    """Which call of the same phase it is, as `Kernel.call`."""
    value: str
    """The node whose value both touch, the largest; empty for one that only the generated code has."""
    bytes: int
    """Of all that both touch, as this one reads it."""
    is_produced: bool
    """Whether the earlier one writes what this one reads; else both read it."""
    code: UnfusedCode
    reason: str
    """In the user's words."""
    torch: str = ""
    """What torch's scheduler says; empty where it was not asked, as about library calls."""
    span: Span | None = None
    """The expression whose value it is; None where the user has no line for it."""


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
    """The user's expressions that it computes, of a backward kernel those that it differentiates; line by
    line, the line that has most of it first, where shares are known."""
    bytes_read: int | None = None
    """From memory by this launch, each element once, at the example's sizes; None where nothing is known."""
    bytes_written: int | None = None
    flops: int | None = None
    """A fused multiply-add is two; index arithmetic counts nothing.  None where nobody knows: in a kernel of
    the user's, and in a library's operator without a formula."""
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
    """`bytes_read` and `bytes_written` together."""
    floor_us: float | None = None
    """The least time on the target, an estimate by its peak bandwidth and arithmetic; None where unknown."""
    bound: str = ""
    """What the floor is set by: `memory` or `arithmetic`."""
    error: str = ""
    """Why the kernel could not be compiled; empty where it was."""
    call: int = 0
    """Which call of its phase it is, from 0, among those for the same target."""
    intensity: float | None = None
    """Operations for each byte moved; None where nothing is known or moved."""
    accesses: tuple[KernelAccess, ...] = ()
    shares: tuple[KernelShare, ...] = ()
    """By expression; empty where the user has no line for it, and for a CPU."""
    unfused: tuple[Unfused, ...] = ()
    """Earlier kernels that it shares values with, the costliest first."""
    layer: str = ""
    """The layer of the user's model that it belongs to, `blocks.3`; empty outside of layers."""
    added: str = ""
    """Which stage added it and why, where no expression of the user's asks for it."""
    ran: KernelChoice | None = None
    """What the GPU has chosen by running all configurations; None where it was not run, and of a library."""
    ending_us: tuple[float, ...] = ()
    """Measured beside `time_us`: the sums of what its blocks left, with which it ends, one by one."""


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
    """The sum of what was measured; None when not all ran."""
    unknown: int = 0
    """Calls of which nothing is known, which the sums lack."""
    unknown_flops: int = 0
    """Calls whose bytes are known and whose operations are not, so that the operations, and the floor by
    arithmetic, lack them."""
