"""The kernel calls of one lowered graph as report rows.

Invariant: rows are built from plain data (from a child process or a cache), without Inductor or Triton.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from aotlens.codegen.gpu.cost_model.fusion import unfused_rows
from aotlens.codegen.gpu.cost_model.kernel_costs import with_costs
from aotlens.codegen.gpu.cost_model.occupancy import Block, occupancy, waves
from aotlens.codegen.gpu.records import BuiltConfig, BuiltKernel, KernelCall, LoweredGraph
from aotlens.ir.layers import Layers
from aotlens.ir.program import Node, Program
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.report import Kernel, KernelConfig, KernelText, Phase, Span


@dataclass(frozen=True, slots=True)
class NodeLocations:
    """The nodes of one program with their source locations and layers."""

    nodes: dict[str, Node]
    layers: Layers

    @classmethod
    def from_program(cls, program: Program, layers: Layers) -> "NodeLocations":
        nodes = {node.name: node for node in _all_nodes(program)}
        return cls(nodes, layers)

    def span(self, name: str) -> Span | None:
        """Return the innermost expression of a node; for a backward node, of the operator that it
        differentiates."""
        node = self.nodes.get(name)
        return node.origin.location.innermost if node is not None else None

    def layer(self, names: tuple[str, ...]) -> str:
        """Return the layer of most of the nodes."""
        counts = Counter(filter(None, (self.layers.layer_of(self.nodes[name]) for name in names)))
        return counts.most_common(1)[0][0] if counts else ""


def _all_nodes(program: Program) -> Iterator[Node]:
    """Yield the nodes of the program and of its subgraphs."""
    for body in program.subgraphs():
        yield from _all_nodes(body)
    yield from program.nodes


def kernel_rows(
    graph: LoweredGraph,
    built: dict[tuple[Phase, str], BuiltKernel],
    locations: NodeLocations,
    target: GpuTarget,
) -> Iterator[Kernel]:
    """Yield a row for each call of a graph, in call order."""
    sources = {kernel.name: kernel for kernel in graph.kernels}
    unfused = unfused_rows(graph, locations.span)
    launches: Counter[str] = Counter()
    for index, call in enumerate(graph.calls):
        members = tuple(name for name in call.nodes if name in locations.nodes)
        spans = tuple(dict.fromkeys(filter(None, map(locations.span, members))))
        row = Kernel(
            name=call.name,
            phase=call.phase,
            target="cpu" if call.on_cpu else target.sm,
            source=sources[call.name].source if call.name in sources else "",
            nodes=members,
            spans=spans,
            kind="generated" if call.name in sources or call.on_cpu else "library",
            call=index,
            unfused=unfused.get(index, ()),
            layer=locations.layer(members),
            added="" if spans else _added(call, members, locations),
        )
        row = with_costs(row, call, target, locations.span)
        launch = launches[call.name]
        source_launches = sources[call.name].calls[launch : launch + 1] if call.name in sources else ()
        is_example = any(source_launch.is_example for source_launch in source_launches)
        kernel = built.get((call.phase, call.name))
        yield with_built_code(row, kernel, launch, target, is_example=is_example) if kernel else row
        launches[call.name] += 1


def _added(call: KernelCall, members: tuple[str, ...], locations: NodeLocations) -> str:
    """Return which stage added a call without a user expression, and why."""
    origins = [locations.nodes[name].origin for name in members]
    with_reason = next((origin for origin in origins if origin.reason), None)
    if with_reason is not None:
        return f"{with_reason.stage}: {with_reason.reason}"
    if members:
        names = ", ".join(f"`{name}`" for name in members[:3])
        return f"{origins[0].stage}: computes {names}, for which no line of yours is known"
    return f"codegen: {call.added or 'Inductor gives no node of the graph for it'}"


def with_built_code(
    row: Kernel, built: BuiltKernel, launch: int, target: GpuTarget, *, is_example: bool = False
) -> Kernel:
    """Return the row with the compiled configurations of its kernel, or with the error of the compilation."""
    if built.error:
        return replace(row, error=built.error)
    chosen = built.configs[0]
    return replace(
        row,
        registers=chosen.registers,
        spill_bytes=chosen.spill_bytes,
        shared_bytes=chosen.shared_bytes,
        configs=tuple(
            replace(_config(config, launch, target), grid_of_example=is_example) for config in built.configs
        ),
        texts=tuple(KernelText(*text) for text in built.texts) if launch == 0 else (),
    )


def _config(config: BuiltConfig, launch: int, target: GpuTarget) -> KernelConfig:
    architecture = target.architecture
    block = Block(config.warps * architecture.warp_size, config.registers, config.shared_bytes)
    block_occupancy = occupancy(architecture, block)
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
        occupancy=block_occupancy.ratio,
        limit=block_occupancy.limit,
        waves=waves(target, block_occupancy, grid) if grid is not None else None,
    )
