"""Compile graphs with `functorch.compile`-style compilers, one per kind of graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from torch import fx

from aotlens.analysis.records import MutationType
from aotlens.codegen.graph_calls import Run, as_boxed, as_unchanged_graph
from aotlens.codegen.records import Generated, GraphCode
from aotlens.codegen.saved_layouts import Strides, lay_out_inputs, reported_strides
from aotlens.ir.program import Program
from aotlens.ir.slots import stays_in_place
from aotlens.joint.convention import Convention, backward_convention, forward_convention, tag_sides
from aotlens.options import Backend, Compilers
from aotlens.partition.records import Partitioned
from aotlens.torch_api.aot import compiles_backward_at_once
from aotlens.torch_api.dynamo.state import TracingContext, tracing
from aotlens.torch_api.modes import without_autocast

MODEL = "model"
"""The first part of every graph name, as in `functorch.compile`."""
FORWARD_MODULE, BACKWARD_MODULE = 0, 1
"""Positions in `Partitioned.modules`."""

_function_numbers = count()
"""A number for each function that is compiled, which its graphs share."""


@dataclass(slots=True)
class _Progress:
    """What the compilers of this process do; mutable.  A compiler asks for it to name its files."""

    current_graph: list[str]
    """The graph being compiled, `0_forward`, as the only item; empty outside of a compiler."""
    compiled_graphs: int


_PROGRESS = _Progress([], 0)


@contextmanager
def compiling_graph(function: int, role: str) -> Iterator[None]:
    """Mark a graph as being compiled; `role` is `forward`, `backward` or `inference`."""
    outer, _PROGRESS.current_graph = _PROGRESS.current_graph, [f"{function}_{role}"]
    try:
        yield
    finally:
        _PROGRESS.current_graph = outer
        _PROGRESS.compiled_graphs += 1


def get_aot_compilation_context() -> tuple[list[str], str, int]:
    """Return the graph being compiled (none outside of a compiler), the model's name, and the number of
    earlier graphs."""
    return list(_PROGRESS.current_graph), MODEL, _PROGRESS.compiled_graphs


def get_aot_graph_name() -> str:
    """Return a name for the graph being compiled: `model__0_forward_0`."""
    return f"{MODEL}__{'_'.join(_PROGRESS.current_graph)}_{_PROGRESS.compiled_graphs}"


get_graph_being_compiled = get_aot_graph_name


@dataclass(slots=True)
class Metadata:
    """The fields of `TracingContext.fw_metadata` that compilers read, by torch's names."""

    static_input_indices: list[int]
    """Inputs whose address never changes: parameters and buffers."""
    mutated_inp_runtime_indices: list[int]
    """Inputs whose new values the wrapper copies back."""
    num_outputs: int
    num_intermediate_bases: int
    is_train: bool
    keep_input_mutations: bool
    bw_donated_idxs: list[int]

    @property
    def num_mutated_inp_runtime_indices(self) -> int:
        return len(self.mutated_inp_runtime_indices)


def code_of_compilers(parts: Partitioned, compilers: Compilers, keeps_mutations: bool) -> Generated:
    """Return the code of each graph; the backward is compiled at its first call, unless torch is configured
    otherwise."""
    graphs = _CompilerGraphs(parts, keeps_mutations)
    saved = tuple(program_input.node for program_input in parts.saved_inputs)
    forward = forward_convention(parts.joint, parts.forward, saved)
    first = compilers.forward if parts.backward is not None else compilers.inference
    code = GraphCode(parts.forward, lambda: graphs.compile_first(forward, first))
    if parts.backward is None:
        return Generated(code, None)
    backward = parts.backward

    def compile_backward(program: Program) -> Run:
        return graphs.compile_backward(program, compilers.backward)

    return Generated(
        code,
        GraphCode(
            backward,
            lambda: compile_backward(backward),
            compile_backward,
            lazy=not compiles_backward_at_once(),
        ),
    )


class _CompilerGraphs:
    """The graphs of one function."""

    def __init__(self, parts: Partitioned, keeps_mutations: bool) -> None:
        self._parts = parts
        self._keeps_mutations = keeps_mutations
        self._number = next(_function_numbers)
        self._context = TracingContext.try_get()
        self._strides: Strides = {}

    def compile_first(self, convention: Convention, compiler: Backend) -> Run:
        """Compile the forward, or the only graph."""
        module = self._module(convention, FORWARD_MODULE)
        context: Any = self._context
        if context is None:
            return self._run(self._parts.forward, convention, module, compiler)
        context.fw_metadata, context.params_flat = self._metadata(convention.program), []
        with context.report_output_strides() as reported:
            result = self._run(self._parts.forward, convention, module, compiler)
        self._strides |= reported_strides(convention.program, reported)
        return result

    def compile_backward(self, program: Program, compiler: Backend) -> Run:
        """Compile the backward, or a variant with the same inputs, for which no partition made a module."""
        backward, convention = self._parts.backward, backward_convention(self._parts.joint, program)
        is_variant = backward is None or convention.program.nodes is not backward.nodes
        module = self._module(convention, None if is_variant else BACKWARD_MODULE)
        if self._strides:
            with self._parts.joint.captured.fake_mode:
                lay_out_inputs(module, convention.program, self._strides)
        with tracing(self._context):
            return self._run(program, convention, module, compiler)

    def _module(self, convention: Convention, module_index: int | None) -> fx.GraphModule:
        """Build the module of a graph, or return the partition function's own module at `module_index`."""
        if self._parts.modules is not None and module_index is not None:
            return self._parts.modules[module_index]
        module = convention.module()
        tag_sides(module, convention, self._parts.joint)
        return module

    def _run(
        self, program: Program, convention: Convention, module: fx.GraphModule, compiler: Backend
    ) -> Run:
        """Call the compiler on a program's module; return its result in our convention."""
        role = program.name if program is self._parts.forward else "backward"
        examples = convention.examples
        if role == "backward" and self._strides:
            examples = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
        with without_autocast(), compiling_graph(self._number, role):  # the graph contains autocast's casts
            compiled = compiler(module, examples)
        return as_unchanged_graph(compiled, module, program, convention.adapt(as_boxed(compiled)))

    def _metadata(self, program: Program) -> Metadata:
        meta = self._parts.joint.meta
        outside = MutationType.MUTATED_OUT_GRAPH
        return Metadata(
            static_input_indices=[
                index
                for index, program_input in enumerate(program.inputs)
                if stays_in_place(program_input.slot)
            ],
            mutated_inp_runtime_indices=[
                index for index, info in enumerate(meta.inputs) if info.mutation_type is outside
            ],
            num_outputs=len(meta.outputs),
            num_intermediate_bases=len(meta.bases),
            is_train=self._parts.backward is not None,
            keep_input_mutations=self._keeps_mutations,
            bw_donated_idxs=[],
        )
