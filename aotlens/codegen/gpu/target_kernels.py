"""The kernels of one target on a GPU, added to the code of its graphs.

Invariant: nothing is generated before it is needed, and then once for forward and backward together.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from aotlens.codegen.gpu.generation import GpuCode, generate_for_gpu
from aotlens.codegen.gpu.kernel_rows import NodeLocations, kernel_rows
from aotlens.codegen.gpu.offline.context import gpu_in_use
from aotlens.codegen.gpu.offline.requirements import require_triton
from aotlens.codegen.gpu.records import GpuRequest
from aotlens.codegen.records import Generated, GraphCode
from aotlens.ir.layers import Layers
from aotlens.ir.program import Program
from aotlens.model.gpus.names import find_target
from aotlens.model.report import Kernel, KernelChoice, Phase
from aotlens.options import CompileOptions
from aotlens.partition.records import Partitioned


def with_gpu_kernels(code: Generated, parts: Partitioned, options: CompileOptions) -> Generated:
    """Return the code with kernels for the GPU of the options.

    Raises:
        UserError: no GPU of that name, or Triton is missing.
    """
    assert options.gpu is not None  # checked by the caller
    require_triton()
    target, config = find_target(options.gpu), dict(options.inductor_config)
    request = GpuRequest(target, config, options.gpu_texts, options.kernel_limit_s)
    target_kernels = _TargetKernels(parts, request, partial(_local_choices, code, target.sm))

    def with_rows(graph: GraphCode | None, phase: Phase) -> Any:
        return graph and replace(graph, gpu_kernels=partial(target_kernels.kernels, graph.program, phase))

    forward = with_rows(code.forward, "forward" if parts.backward is not None else "inference")
    backward = with_rows(code.backward, "backward")
    return replace(
        code,
        forward=forward,
        backward=backward,
        gpu=target_kernels.sm,
        gpu_name=target.name,
        gpu_assumptions=target_kernels.assumptions,
        gpu_error=target_kernels.error,
    )


Choices = dict[tuple[Phase, str], KernelChoice]


def _local_choices(code: Generated, sm: str) -> Choices:
    """Return the autotuned configurations of kernels that ran here, if they ran on that GPU."""
    if sm != gpu_in_use():
        return {}
    rows = [row for graph in (code.forward, code.backward) if graph is not None for row in graph.kernels()]
    return {(row.phase, row.name): row.ran for row in rows if row.ran is not None}


class _TargetKernels:
    """Forward and backward of one target, generated once."""

    def __init__(self, parts: Partitioned, request: GpuRequest, choices: Callable[[], Choices]) -> None:
        self._parts = parts
        self._request = request
        self._choices = choices
        self._code: GpuCode | None = None
        self._layers: Layers | None = None

    @property
    def sm(self) -> str:
        return self._request.target.sm

    def assumptions(self) -> tuple[str, ...]:
        """Return the GPU whose figures are used, then the assumptions of all graphs, each once."""
        target, graphs = self._request.target, self._generated().graphs
        texts = dict.fromkeys(text for graph in graphs for text in graph.assumptions)
        if not graphs:
            return tuple(texts)
        bandwidth = f"{target.bandwidth_gb_per_s:,} GB/s of memory"
        return (
            f"the GPU is the {target.name}: {target.multiprocessors} multiprocessors, {bandwidth}",
            *texts,
        )

    def error(self) -> str:
        """Return why there are no kernels; empty if there are."""
        return self._generated().error

    def kernels(self, program: Program, phase: Phase) -> tuple[Kernel, ...]:
        """Return the rows of one graph, in call order; none where it could not be lowered."""
        code = self._generated()
        graph = next((graph for graph in code.graphs if graph.phase == phase), None)
        if graph is None:
            return ()
        if self._layers is None:
            self._layers = Layers(self._parts.joint.program)
        locations = NodeLocations.from_program(program, self._layers)
        return tuple(kernel_rows(graph, code.kernels, locations, self._request.target))

    def _generated(self) -> GpuCode:
        if self._code is None:
            self._code = generate_for_gpu(self._parts, replace(self._request, ran=self._choices()))
        return self._code
