"""aotlens: what ahead-of-time compilation does to a PyTorch function, shown at the source line.

Importing this package imports nothing heavy; torch is imported by the first name that needs it.
"""

from typing import TYPE_CHECKING, Any

from aotlens._version import __version__

if TYPE_CHECKING:
    from aotlens.codegen.compilers import (
        get_aot_compilation_context,
        get_aot_graph_name,
        get_graph_being_compiled,
    )
    from aotlens.errors import AotlensError, UnsupportedError
    from aotlens.frontends.compile import compile, export, inspect
    from aotlens.frontends.compilers import (
        config,
        default_decompositions,
        draw_graph,
        draw_graph_compile,
        make_boxed_compiler,
        make_boxed_func,
        memory_efficient_fusion,
        minifier,
        nnc_jit,
        nop,
        print_compile,
        pythonkey_decompose,
        simple_ts_compile,
        ts_compile,
    )
    from aotlens.frontends.export_signature import BackwardSignature, GraphSignature
    from aotlens.frontends.functorch import aot_function, compiled_function
    from aotlens.frontends.functorch_export import (
        JointWithDescriptors,
        aot_compile_joint_with_descriptors,
        aot_export_joint_simple,
        aot_export_joint_with_descriptors,
        aot_export_module,
    )
    from aotlens.frontends.functorch_module import (
        aot_autograd,
        aot_module,
        aot_module_simplified,
        compiled_module,
    )
    from aotlens.model.report import Report
    from aotlens.options import CompileOptions
    from aotlens.partition.graph_modules import default_partition, min_cut_rematerialization_partition
    from aotlens.session.script.example_decorator import example
    from aotlens.verify import verify

_HOMES = {
    "AotlensError": "aotlens.errors",
    "BackwardSignature": "aotlens.frontends.export_signature",
    "CompileOptions": "aotlens.options",
    "GraphSignature": "aotlens.frontends.export_signature",
    "JointWithDescriptors": "aotlens.frontends.functorch_export",
    "Report": "aotlens.model.report",
    "UnsupportedError": "aotlens.errors",
    "aot_autograd": "aotlens.frontends.functorch_module",
    "aot_compile_joint_with_descriptors": "aotlens.frontends.functorch_export",
    "aot_export_joint_simple": "aotlens.frontends.functorch_export",
    "aot_export_joint_with_descriptors": "aotlens.frontends.functorch_export",
    "aot_export_module": "aotlens.frontends.functorch_export",
    "aot_function": "aotlens.frontends.functorch",
    "aot_module": "aotlens.frontends.functorch_module",
    "aot_module_simplified": "aotlens.frontends.functorch_module",
    "compile": "aotlens.frontends.compile",
    "compiled_function": "aotlens.frontends.functorch",
    "compiled_module": "aotlens.frontends.functorch_module",
    "config": "aotlens.frontends.compilers",
    "default_decompositions": "aotlens.frontends.compilers",
    "default_partition": "aotlens.partition.graph_modules",
    "draw_graph": "aotlens.frontends.compilers",
    "draw_graph_compile": "aotlens.frontends.compilers",
    "example": "aotlens.session.script.example_decorator",
    "export": "aotlens.frontends.compile",
    "get_aot_compilation_context": "aotlens.codegen.compilers",
    "get_aot_graph_name": "aotlens.codegen.compilers",
    "get_graph_being_compiled": "aotlens.codegen.compilers",
    "inspect": "aotlens.frontends.compile",
    "make_boxed_compiler": "aotlens.frontends.compilers",
    "make_boxed_func": "aotlens.frontends.compilers",
    "memory_efficient_fusion": "aotlens.frontends.compilers",
    "min_cut_rematerialization_partition": "aotlens.partition.graph_modules",
    "minifier": "aotlens.frontends.compilers",
    "nnc_jit": "aotlens.frontends.compilers",
    "nop": "aotlens.frontends.compilers",
    "print_compile": "aotlens.frontends.compilers",
    "pythonkey_decompose": "aotlens.frontends.compilers",
    "simple_ts_compile": "aotlens.frontends.compilers",
    "ts_compile": "aotlens.frontends.compilers",
    "verify": "aotlens.verify",
}
"""Where each public name lives; the module is imported when the name is first used."""

__all__ = [
    "AotlensError",
    "BackwardSignature",
    "CompileOptions",
    "GraphSignature",
    "JointWithDescriptors",
    "Report",
    "UnsupportedError",
    "__version__",
    "aot_autograd",
    "aot_compile_joint_with_descriptors",
    "aot_export_joint_simple",
    "aot_export_joint_with_descriptors",
    "aot_export_module",
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "compile",
    "compiled_function",
    "compiled_module",
    "config",
    "default_decompositions",
    "default_partition",
    "draw_graph",
    "draw_graph_compile",
    "example",
    "export",
    "get_aot_compilation_context",
    "get_aot_graph_name",
    "get_graph_being_compiled",
    "inspect",
    "make_boxed_compiler",
    "make_boxed_func",
    "memory_efficient_fusion",
    "min_cut_rematerialization_partition",
    "minifier",
    "nnc_jit",
    "nop",
    "print_compile",
    "pythonkey_decompose",
    "simple_ts_compile",
    "ts_compile",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'aotlens' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
