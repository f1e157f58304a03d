"""The kernels of one target on a GPU: lowered in one child process, compiled in many.

Invariant: this process is never told of a GPU; a kernel that fails leaves the others.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from aotlens.codegen.gpu.build import build_kernel, prepare
from aotlens.codegen.gpu.forked import Failed, Job, in_children
from aotlens.codegen.gpu.lower import lower
from aotlens.codegen.gpu.needs import require_triton
from aotlens.codegen.gpu.offline import offline_gpu
from aotlens.codegen.gpu.records import BuiltKernel, KernelSource, LoweredGraph
from aotlens.codegen.gpu.rows import kernel_rows
from aotlens.codegen.gpu.targets import GpuTarget, find_target
from aotlens.codegen.records import Generated, GraphCode
from aotlens.ir.program import Program
from aotlens.observe import announce_stage
from aotlens.options import CompileOptions
from aotlens.partition.records import Partitioned
from aotlens.report.records import Kernel, Phase

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
        code,
        forward=forward,
        backward=backward,
        gpu=unit.sm,
        gpu_assumptions=unit.assumptions,
        gpu_error=unit.error,
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

    @property
    def sm(self) -> str:
        return self._target.sm

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
        return tuple(kernel_rows(graph, self._built, program, self._target))

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
