"""Programs lowered for a GPU in one child process, without compiling their kernels."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aotlens.codegen.gpu.child_processes import ChildFailure, ChildJob, run_in_children
from aotlens.codegen.gpu.kernel_rows import NodeLocations, kernel_rows
from aotlens.codegen.gpu.lowering import lower
from aotlens.codegen.gpu.machine_code.triton_build import prepare
from aotlens.codegen.gpu.offline.context import offline_gpu
from aotlens.codegen.gpu.records import LoweredGraph
from aotlens.ir.layers import Layers
from aotlens.model.gpus.names import find_target
from aotlens.model.report import Kernel
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

H100 = find_target("h100")
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    function: Callable[..., Any]
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """What the report says of one program's kernels, without what compiling them tells."""

    kernels: tuple[Kernel, ...]
    noted: Any = None
    wrappers: tuple[str, ...] = ()
    """Inductor's text of each graph, the forward first."""


def rows_of(cases: dict[str, Case], note: Callable[[], Any] = lambda: None) -> dict[str, Rows]:
    """The rows of each program, forward and backward; `note` is asked in the child after each."""
    parts = {
        name: compile_direct(case.function, case.args, {}, CompileOptions("eager", gpu="h100")).parts
        for name, case in cases.items()
    }

    def work() -> Iterator[tuple[str, list[LoweredGraph], Any]]:
        with offline_gpu(H100):
            for name, each in parts.items():
                yield name, list(lower(each, {})), note()

    prepare()
    found = {}
    for _, result in run_in_children(deque([ChildJob("lowering", work, LIMIT_S)]), 1):
        assert not isinstance(result, ChildFailure), result.message
        name, graphs, noted = result
        wrappers = tuple(graph.source for graph in graphs)
        found[name] = Rows(tuple(_rows(parts[name], graphs)), noted, wrappers)
    return found


def _rows(parts: Any, graphs: list[LoweredGraph]) -> Iterator[Kernel]:
    layers = Layers(parts.joint.program)
    for graph in graphs:
        program = parts.backward if graph.phase == "backward" else parts.forward
        yield from kernel_rows(graph, {}, NodeLocations.from_program(program, layers), H100)
