"""The records of GPU code generation: plain data that a child process can send."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotlens.codegen.gpu.launches import Launch
from aotlens.codegen.graph_adapter import GraphAdapter
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.report import KernelChoice, Phase


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What to generate for a GPU."""

    target: GpuTarget
    config: dict[str, Any]
    """Inductor settings, as the user gave them."""
    texts: tuple[str, ...]
    """Languages in which each kernel is reported, in addition to Triton's."""
    kernel_limit_s: float
    ran: Mapping[tuple[Phase, str], KernelChoice] = field(default_factory=dict)
    """The fastest configuration by phase and kernel, as autotuned on this machine's GPU; empty for another
    GPU."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel as another choice of its template, without epilogues that would be fused into it."""

    name: str
    source: str
    call: tuple[str, ...]
    """The arguments of a launch; the last three are the grid."""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One Triton kernel as Inductor generated it."""

    name: str
    phase: Phase
    source: str
    calls: tuple[Launch, ...]
    """Its launches in the wrapper, in call order."""
    choices: tuple[Choice, ...] = ()
    """The template choices that were not selected."""
    ran: KernelChoice | None = None
    """The fastest configuration by autotuning; None without autotuning."""


@dataclass(frozen=True, slots=True)
class Access:
    """A value in memory that one call reads or writes."""

    buffer: str
    """Inductor's name of the buffer, unique to a value of one graph."""
    node: str
    """The program's node whose value it is; empty for a value that Inductor added."""
    written: bool
    bytes: int
    """Each element counted once, at the example's sizes."""
    sector_bytes: int
    """The bytes that memory transfers for them: whole sectors, so more where elements are scattered."""
    by: tuple[str, ...]
    """The program's nodes that read it in this call, or whose value is written."""
    is_gather: bool = False
    """Whether the elements depend on data, so that `sector_bytes` is an upper bound."""


@dataclass(frozen=True, slots=True)
class NodeWork:
    """The work of one node in a kernel."""

    node: str
    """The program's node; empty for one that Inductor added."""
    flops: int
    dtype: str
    """The dtype of its result, by the report's short name."""
    is_product: bool
    """Whether matrix units can compute it: a matrix product, a convolution, attention."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch of a kernel, or one call of a library."""

    name: str
    phase: Phase
    nodes: tuple[str, ...]
    """The program's nodes that the call computes."""
    accesses: tuple[Access, ...] = ()
    work: tuple[NodeWork, ...] = ()
    added: str = ""
    """Why Inductor adds this call, where no node of the program asks for it."""
    is_extern: bool = False
    """Whether Inductor did not generate it: a library call, or the user's own kernel."""
    on_cpu: bool = False
    """Whether it computes on the CPU, where the script put its tensors."""


@dataclass(frozen=True, slots=True)
class NotFused:
    """Two calls that share a value, and the reason that Inductor's scheduler logged for not fusing them."""

    first: int
    """The position of the earlier call."""
    second: int
    buffers: tuple[str, ...]
    """The values that both access, the largest first."""
    is_produced: bool
    """Whether the second reads what the first writes; otherwise both read it."""
    why: str
    """The scheduler's reason; empty where it logged none."""


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """One graph lowered by Inductor."""

    phase: Phase
    source: str
    """The wrapper that calls the kernels."""
    kernels: tuple[KernelSource, ...]
    calls: tuple[KernelCall, ...]
    assumptions: tuple[str, ...]
    """The assumptions made when the graph was retargeted to the GPU."""
    not_fused: tuple[NotFused, ...] = ()


@dataclass(frozen=True, slots=True)
class RunnableGraph:
    """A lowered graph with everything that its wrapper needs to run."""

    lowered: LoweredGraph
    adapter: GraphAdapter
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """By the wrapper's name of each."""
    states: tuple[int, ...] = ()
    """RNG states of attentions, by index: extra outputs of a forward, extra inputs of a backward."""
    buffers: Mapping[str, str] = field(default_factory=dict)
    """The program's node whose value a buffer holds, by the wrapper's name of the buffer."""


@dataclass(frozen=True, slots=True)
class BuiltConfig:
    """A kernel compiled with one choice of block sizes."""

    values: tuple[tuple[str, int], ...]
    """Block sizes: `XBLOCK`, `R0_BLOCK`."""
    warps: int
    stages: int
    registers: int
    frame_bytes: int
    """Local memory per thread: spills, and arrays that are indexed."""
    spill_bytes: int
    """Bytes that a thread's spills store and load, as the assembler counts them: each instruction once, even
    in a loop."""
    shared_bytes: int
    """Shared memory per block."""
    grids: tuple[tuple[int, int, int] | None, ...]
    """The grid of each launch; None where it depends on data."""

    def launched(self, times: int) -> "BuiltConfig":
        """Return the configuration for a kernel with `times` identical launches."""
        return replace(self, grids=self.grids[:1] * times)


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A compiled kernel, or the error that prevented it."""

    name: str
    configs: tuple[BuiltConfig, ...] = ()
    """The selected configuration first."""
    texts: tuple[tuple[str, str], ...] = ()
    """Of the selected configuration: `ttir`, `ttgir`, `llir`, `ptx`, `sass`."""
    cubin: bytes = b""
    error: str = ""
    """Triton's message; empty for a compiled kernel."""
