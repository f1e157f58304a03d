"""The codegen stage: choose the backend, and generate the code of each program."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aotlens.codegen.compilers import code_of_compilers
from aotlens.codegen.gpu.retarget import has_gpu_tensors
from aotlens.codegen.graph_calls import as_boxed, as_unchanged_graph
from aotlens.codegen.in_place_updates import with_in_place_updates
from aotlens.codegen.inductor import inductor_code, inductor_text
from aotlens.codegen.records import Generated, GraphCode
from aotlens.errors import BackendError
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.program import Program
from aotlens.options import BACKENDS, CompileOptions, Compilers, Interpreted
from aotlens.partition.records import Partitioned
from aotlens.torch_api.fake.gpu import emulates_gpu
from aotlens.torch_api.modes import without_autocast
from aotlens.unsupported import unsupported


def generate(parts: Partitioned, options: CompileOptions) -> Generated:
    """Generate the forward's code, and the backward's lazily; for a GPU target also its kernels.

    Raises:
        BackendError: no backend of that name, the backend failed on the forward graph, or Triton is missing
            for a GPU target.
    """
    if options.standalone:
        return replace(_generate_text(parts, options), is_standalone=True)
    # GPU code generation is 40 modules: load them only for a GPU target.
    if isinstance(options.backend, Interpreted):
        from aotlens.codegen.gpu.interpreter_backend import interpreted_code

        return interpreted_code(parts, options)
    code = _generate(parts, options)
    if options.gpu is None:
        return code
    from aotlens.codegen.gpu.target_kernels import with_gpu_kernels

    return with_gpu_kernels(code, parts, options)


def _generate_text(parts: Partitioned, options: CompileOptions) -> Generated:
    """Generate code as text, as a standalone module needs it."""
    if options.backend == "inductor":
        _reject_emulated_gpu(parts)
        return inductor_text(parts, dict(options.inductor_config))
    if options.backend == "eager":
        return _generate(parts, options)
    raise BackendError(f"only backends {', '.join(BACKENDS)} give text that stands alone")


def _generate(parts: Partitioned, options: CompileOptions) -> Generated:
    backend = options.backend
    if backend == "eager":
        backward = GraphCode(parts.backward, None) if parts.backward is not None else None
        return Generated(GraphCode(with_in_place_updates(parts.forward), None), backward)
    if backend == "inductor":
        _reject_emulated_gpu(parts)
        return inductor_code(parts, dict(options.inductor_config), options.lazy_backward)
    if isinstance(backend, Compilers):
        return code_of_compilers(parts, backend, options.keep_input_mutations)
    if callable(backend):
        return _custom(parts, backend, options)
    raise BackendError(f"no backend `{backend}`; choose one of {', '.join(BACKENDS)} or give a callable")


def _reject_emulated_gpu(parts: Partitioned) -> None:
    """Raise UnsupportedError for a target on an emulated GPU, whose kernels cannot run here."""
    if emulates_gpu() and has_gpu_tensors(parts):
        raise unsupported("kernels-of-absent-gpu", parts.joint.captured.subject.span)


def _custom(parts: Partitioned, backend: Callable[..., Any], options: CompileOptions) -> Generated:
    training = parts.backward is not None

    def compile_graph(program: Program) -> Callable[[list[Any]], Any]:
        module = to_graph_module(program, training)
        with without_autocast():  # the graph contains autocast's casts
            compiled = backend(module, [program_input.node.val for program_input in program.inputs])
        return as_unchanged_graph(compiled, module, program, as_boxed(compiled))

    def code(program: Program, lazy: bool) -> GraphCode:
        return GraphCode(program, lambda: compile_graph(program), compile_graph, lazy)

    backward = code(parts.backward, options.lazy_backward) if parts.backward is not None else None
    return Generated(code(parts.forward, False), backward)
