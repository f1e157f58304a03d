"""What code generation for a GPU gives: plain data, which a child process can send."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotlens.codegen.gpu.launches import Launch
from aotlens.codegen.gpu.targets import GpuTarget
from aotlens.codegen.graph_adapter import GraphAdapter
from aotlens.model.report import KernelChoice, Phase


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What is asked for."""

    target: GpuTarget
    config: dict[str, Any]
    """Inductor's, as the user gave it."""
    texts: tuple[str, ...]
    """Languages in which each kernel is shown, beside Triton's."""
    kernel_limit_s: float
    ran: Mapping[tuple[Phase, str], KernelChoice] = field(default_factory=dict)
    """By phase and kernel, what this machine's GPU has found the fastest; empty for another GPU."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel as another choice of its template writes it, without what would be fused into it."""

    name: str
    source: str
    call: tuple[str, ...]
    """The arguments of a launch, of which the last three are the grid."""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One Triton kernel as Inductor wrote it."""

    name: str
    phase: Phase
    source: str
    calls: tuple[Launch, ...]
    """Its launches in the wrapper, in call order."""
    choices: tuple[Choice, ...] = ()
    """Those of its template that were not taken."""
    ran: KernelChoice | None = None
    """What the GPU has found the fastest by running all; None where it has not."""


@dataclass(frozen=True, slots=True)
class Access:
    """A value in memory that one call reads, or that it writes."""

    buffer: str
    """By Inductor's name, which is one value of one graph."""
    node: str
    """The node of our program whose value it is; empty for one of Inductor's own."""
    written: bool
    bytes: int
    """Each element once, at the example's sizes."""
    sector_bytes: int
    """What the memory moves for them: more where they lie apart, since it moves whole sectors."""
    by: tuple[str, ...]
    """Nodes of our program that read it in this call, or whose value is written."""
    is_gather: bool = False
    """Whether data tells which elements, so that `sector_bytes` is the most that it can be."""


@dataclass(frozen=True, slots=True)
class NodeWork:
    """What one node costs where it is computed."""

    node: str
    """Of our program; empty for one of Inductor's own."""
    flops: int
    dtype: str
    """Of its result, by the report's short name."""
    is_product: bool
    """Whether matrix units can compute it: a matrix product, a convolution, attention."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch of a kernel, or one call of a library."""

    name: str
    phase: Phase
    nodes: tuple[str, ...]
    """Nodes of our program that it computes."""
    accesses: tuple[Access, ...] = ()
    work: tuple[NodeWork, ...] = ()
    added: str = ""
    """Why Inductor makes this call, where no node of our program asks for it."""
    is_extern: bool = False
    """Whether Inductor did not write it: a library call, or the user's own kernel."""
    on_cpu: bool = False
    """Whether it computes what the script has put on the CPU."""


@dataclass(frozen=True, slots=True)
class NotFused:
    """Two calls that share a value, and what Inductor's scheduler said when it did not make them one."""

    first: int
    """The position of the earlier call."""
    second: int
    buffers: tuple[str, ...]
    """What both touch, largest first."""
    is_produced: bool
    """Whether the first writes what the second reads; else both read it."""
    why: str
    """The scheduler's words; empty where it gave none."""


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """One graph after Inductor."""

    phase: Phase
    source: str
    """The wrapper that calls the kernels."""
    kernels: tuple[KernelSource, ...]
    calls: tuple[KernelCall, ...]
    assumptions: tuple[str, ...]
    """What was assumed when the graph was moved to the GPU."""
    not_fused: tuple[NotFused, ...] = ()


@dataclass(frozen=True, slots=True)
class RunnableGraph:
    """A graph with what it takes to run its wrapper."""

    lowered: LoweredGraph
    adapter: GraphAdapter
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """By the name that the wrapper has for each."""
    states: tuple[int, ...] = ()
    """Random states of attentions, by their number: what a forward gives beyond our program's outputs, and a
    backward takes beyond our program's inputs."""
    buffers: Mapping[str, str] = field(default_factory=dict)
    """By the wrapper's name of a buffer, the node of our program whose value it holds."""


@dataclass(frozen=True, slots=True)
class BuiltConfig:
    """One kernel compiled with one choice of block sizes."""

    values: tuple[tuple[str, int], ...]
    """Block sizes: `XBLOCK`, `R0_BLOCK`."""
    warps: int
    stages: int
    registers: int
    frame_bytes: int
    """Local memory of a thread: spills, and arrays that are indexed."""
    spill_bytes: int
    """Bytes that a thread's spills store and load, as the assembler counts them: each instruction once, also
    one in a loop."""
    shared_bytes: int
    """Shared memory of a block."""
    grids: tuple[tuple[int, int, int] | None, ...]
    """Blocks of each launch; None where only the data tells their number."""

    def launched(self, times: int) -> "BuiltConfig":
        """The same for a kernel that is launched so often, each time alike."""
        return replace(self, grids=self.grids[:1] * times)


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """One kernel compiled, or why it could not be."""

    name: str
    configs: tuple[BuiltConfig, ...] = ()
    """The chosen one first."""
    texts: tuple[tuple[str, str], ...] = ()
    """Of the chosen configuration: `ttir`, `ttgir`, `llir`, `ptx`, `sass`."""
    cubin: bytes = b""
    error: str = ""
    """Triton's message; empty where the kernel was compiled."""
