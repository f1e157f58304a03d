"""The codegen stage: choose the backend, and give each program its code."""

from collections.abc import Callable
from typing import Any

from aotlens.codegen.boxed import boxed
from aotlens.codegen.inductor import inductor_code
from aotlens.codegen.records import Generated, GraphCode
from aotlens.errors import BackendError
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.program import Program
from aotlens.options import BACKENDS, CompileOptions
from aotlens.partition.records import Partitioned
from aotlens.torch_api import without_autocast


def generate(parts: Partitioned, options: CompileOptions) -> Generated:
    """Code for the forward, and lazily for the backward.

    Raises:
        BackendError: no backend of that name, or the backend failed on the forward graph.
    """
    backend = options.backend
    if backend == "eager":
        backward = GraphCode(parts.backward, None) if parts.backward is not None else None
        return Generated(GraphCode(parts.forward, None), backward)
    if backend == "inductor":
        return inductor_code(parts, dict(options.inductor_config))
    if callable(backend):
        return _custom(parts, backend)
    raise BackendError(f"no backend `{backend}`; choose one of {', '.join(BACKENDS)} or give a callable")


def _custom(parts: Partitioned, backend: Callable[..., Any]) -> Generated:
    training = parts.backward is not None

    def code(program: Program, lazy: bool) -> GraphCode:
        def compile_graph() -> Callable[[list[Any]], Any]:
            module = to_graph_module(program, training)
            with without_autocast():  # what it casts to is in the graph
                return boxed(backend(module, [given.node.val for given in program.inputs]))

        return GraphCode(program, compile_graph, lazy)

    return Generated(code(parts.forward, False), code(parts.backward, True) if parts.backward else None)
