"""The calls of one lowered graph as rows of the report.

Invariant: made from plain data alone (what a child process or a cache gave), without Inductor or Triton.
"""

from collections.abc import Iterator
from dataclasses import replace

from aotlens.codegen.gpu.costs import with_costs
from aotlens.codegen.gpu.occupancy import Block, occupancy, waves
from aotlens.codegen.gpu.records import BuiltConfig, BuiltKernel, LoweredGraph
from aotlens.codegen.gpu.targets import GpuTarget
from aotlens.ir.program import Program
from aotlens.report.records import Kernel, KernelConfig, KernelText, Phase


def kernel_rows(
    graph: LoweredGraph, built: dict[tuple[Phase, str], BuiltKernel], program: Program, target: GpuTarget
) -> Iterator[Kernel]:
    """One row for each call of one graph, in call order."""
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
