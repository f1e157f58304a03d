"""The kernels of one target on a GPU, as rows of the report: lowered in one child process, compiled in many.

Invariant: this process is never told of a GPU; a kernel that fails leaves the others.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from aotlens.codegen.gpu.build import build_kernel, prepare
from aotlens.codegen.gpu.costs import with_costs
from aotlens.codegen.gpu.forked import Failed, Job, in_children
from aotlens.codegen.gpu.lower import lower
from aotlens.codegen.gpu.needs import require_triton
from aotlens.codegen.gpu.occupancy import Block, occupancy, waves
from aotlens.codegen.gpu.offline import offline_gpu
from aotlens.codegen.gpu.records import BuiltConfig, BuiltKernel, KernelSource, LoweredGraph
from aotlens.codegen.gpu.targets import GpuTarget, find_target
from aotlens.codegen.records import Generated, GraphCode
from aotlens.ir.program import Program
from aotlens.observe import announce_stage
from aotlens.options import CompileOptions
from aotlens.partition.records import Partitioned
from aotlens.report.records import Kernel, KernelConfig, KernelText, Phase

LOWERING_LIMIT_S = 600.0
KERNEL_LIMIT_S = 120.0


def with_gpu_kernels(code: Generated, parts: Partitioned, options: CompileOptions) -> Generated:
    """The same code, which also tells the kernels for the GPU of the options.

    Raises:
        UserError: no GPU of that name, or Triton is missing.
    """
    assert options.gpu is not None  # the caller asks
    require_triton()
    unit = _Unit(parts, find_target(options.gpu), dict(options.inductor_config))

    def told(graph: GraphCode | None, phase: Phase) -> Any:
        return graph and replace(graph, gpu_kernels=partial(unit.kernels, graph.program, phase))

    forward = told(code.forward, "forward" if parts.backward is not None else "inference")
    backward = told(code.backward, "backward")
    return replace(
        code, forward=forward, backward=backward, gpu_assumptions=unit.assumptions, gpu_error=unit.error
    )


class _Unit:
    """Forward and backward of one target, generated once."""

    def __init__(self, parts: Partitioned, target: GpuTarget, config: dict[str, Any]) -> None:
        self._parts = parts
        self._target = target
        self._config = config
        self._graphs: tuple[LoweredGraph, ...] | None = None
        self._error = ""
        self._built: dict[tuple[Phase, str], BuiltKernel] = {}

    def assumptions(self) -> tuple[str, ...]:
        """Of all graphs, each once."""
        return tuple(dict.fromkeys(text for graph in self._generated() for text in graph.assumptions))

    def error(self) -> str:
        """Why there are no kernels; empty where there are."""
        self._generated()
        return self._error

    def kernels(self, program: Program, phase: Phase) -> tuple[Kernel, ...]:
        """The rows of one graph, in call order; none where the graphs could not be lowered."""
        graph = next((graph for graph in self._generated() if graph.phase == phase), None)
        if graph is None:
            return ()
        return tuple(_rows(graph, self._built, program, self._target))

    def _generated(self) -> tuple[LoweredGraph, ...]:
        if self._graphs is None:
            prepare()
            self._graphs = self._lowered()
            self._build([kernel for graph in self._graphs for kernel in graph.kernels])
        return self._graphs

    def _lowered(self) -> tuple[LoweredGraph, ...]:
        announce_stage(f"code for {self._target.sm}")
        job: Job[tuple[LoweredGraph, ...]] = Job(
            "Inductor", self._within(partial(lower, self._parts, self._config))
        )
        ((_, lowered),) = in_children([job], 1, LOWERING_LIMIT_S)
        if isinstance(lowered, Failed):
            subject = self._parts.joint.captured.subject
            self._error = f"no code for {self._target.sm} of `{subject.name}`: {lowered.message}"
            return ()
        return lowered

    def _build(self, kernels: list[KernelSource]) -> None:
        jobs = [
            Job(f"Triton on `{kernel.name}`", self._within(partial(build_kernel, kernel, self._target)))
            for kernel in kernels
        ]
        for done, (at, result) in enumerate(in_children(jobs, os.cpu_count() or 1, KERNEL_LIMIT_S), 1):
            kernel = kernels[at]
            built = BuiltKernel(kernel.name, error=result.message) if isinstance(result, Failed) else result
            self._built[kernel.phase, kernel.name] = built
            announce_stage(f"kernels for {self._target.sm}: {done} of {len(kernels)}")

    def _within(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """The work with the target's GPU pretended."""

        def pretending() -> Any:
            with offline_gpu(self._target):
                return work()

        return pretending


def _rows(
    graph: LoweredGraph, built: dict[tuple[Phase, str], BuiltKernel], program: Program, target: GpuTarget
) -> Iterator[Kernel]:
    sources = {kernel.name: kernel for kernel in graph.kernels}
    nodes = {node.name: node for node in program.nodes}
    launches: dict[str, int] = {}
    for call in graph.calls:
        at = launches.get(call.name, 0)
        launches[call.name] = at + 1
        members = tuple(name for name in call.nodes if name in nodes)
        spans = dict.fromkeys(
            span for name in members if (span := nodes[name].origin.place.innermost) is not None
        )
        source = sources.get(call.name)
        row = Kernel(
            name=call.name,
            phase=call.phase,
            target=target.sm,
            source=source.source if source else "",
            nodes=members,
            spans=tuple(spans),
            kind="generated" if source else "library",
        )
        row = with_costs(
            row, [nodes[name] for name in members], source.bytes_moved if source else None, target
        )
        yield _with_code(row, built.get((call.phase, call.name)), at, target)


def _with_code(row: Kernel, built: BuiltKernel | None, launch: int, target: GpuTarget) -> Kernel:
    if built is None or built.error:
        return replace(row, error=built.error if built else "")
    chosen = built.configs[0]
    return replace(
        row,
        registers=chosen.registers,
        spill_bytes=chosen.spill_bytes,
        shared_bytes=chosen.shared_bytes,
        configs=tuple(_config(config, launch, target) for config in built.configs),
        texts=tuple(KernelText(*text) for text in built.texts) if launch == 0 else (),
    )


def _config(config: BuiltConfig, launch: int, target: GpuTarget) -> KernelConfig:
    architecture = target.architecture
    block = Block(config.warps * architecture.warp_size, config.registers, config.shared_bytes)
    held = occupancy(architecture, block)
    grid = config.grids[launch] if launch < len(config.grids) else None
    return KernelConfig(
        blocks=dict(config.values),
        warps=config.warps,
        stages=config.stages,
        registers=config.registers,
        frame_bytes=config.frame_bytes,
        spill_bytes=config.spill_bytes,
        shared_bytes=config.shared_bytes,
        grid=grid,
        occupancy=held.ratio,
        limit=held.limit,
        waves=waves(target, held, grid) if grid is not None else None,
    )
