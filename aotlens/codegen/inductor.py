"""The Inductor backend: forward and backward programs go to `compile_fx_inner`.

Invariant: Inductor is entered after the AOT stage; everything that it needs to know about the caller (visible
outputs, inputs with a fixed address, the strides that the forward chose) is passed here and nowhere else.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx

from aotlens.capture.operator_fixes import KERNEL_DECOMPOSITIONS, norm_decompositions
from aotlens.codegen.graph_adapter import GraphAdapter
from aotlens.codegen.graph_calls import Run, as_boxed
from aotlens.codegen.graph_preparation import DATA_INDEX_RULES as WRITES_AT_NUMBERS_OF_DATA
from aotlens.codegen.graph_preparation import prepare_graph
from aotlens.codegen.kernels import RUNS, Measurable, call_numbers, kernels_of, measure_calls
from aotlens.codegen.opaque_objects import refresh_objects, reject_objects
from aotlens.codegen.records import Generated, GraphCode
from aotlens.codegen.saved_layouts import Strides, lay_out_inputs, reported_strides
from aotlens.codegen.serialized_code import SerializedCode, serialize_code
from aotlens.codegen.standalone_code import aligning_lines, standalone_graph
from aotlens.errors import AotlensError, BackendError
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.program import Program
from aotlens.ir.slots import SavedInput, stays_in_place
from aotlens.model.report import Kernel
from aotlens.partition.records import Partitioned
from aotlens.torch_api.dynamo.state import TracingContext, tracing
from aotlens.torch_api.fake.tensors import FakeTensorMode, allow_unbacked_symbols, suggest_memory_format
from aotlens.torch_api.inductor.compile import (
    GPU_KERNEL_SETTINGS,
    PARTIAL_SOURCE_SETTINGS,
    compile_with_inductor,
    cudagraph_flags,
    inductor_config_patch,
    inductor_decompositions,
    kernel_settings,
)
from aotlens.torch_api.inductor.lowerings import OWN_LOWERINGS
from aotlens.torch_api.inductor.output import inductor_module_globals
from aotlens.torch_api.triton import triton_operators
from aotlens.unsupported import unsupported

Config = dict[str, Any]


def decompositions(config: Config) -> dict[Any, Callable[..., Any]]:
    """Return the decompositions that Inductor expects."""
    with inductor_config_patch(config):
        rules = inductor_decompositions()
        return {
            **rules,
            **norm_decompositions(rules),
            torch.ops.aten.cat.default: _cat_with_kernel_layout(rules[torch.ops.aten.cat.default]),
            **WRITES_AT_NUMBERS_OF_DATA,
            **KERNEL_DECOMPOSITIONS,
            **triton_operators(),
            torch.ops.higher_order.hints_wrapper: _unwrapped,
        }


def _cat_with_kernel_layout(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Inductor's decomposition of `cat` so that its result has the kernel's layout.

    If all operands but one are empty, the decomposition clones that one with its strides: a key-value cache
    that begins as `torch.tensor([])` would keep the transposed strides of its first entry.
    """

    def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
        result = rule(tensors, dim)
        if result is NotImplemented:
            return result
        formats = {suggest_memory_format(tensor) for tensor in tensors}
        layout = formats.pop() if len(formats) == 1 else torch.contiguous_format
        return result.contiguous(memory_format=layout)

    return cat


def _unwrapped(body: Callable[..., Any], args: Any, kwargs: dict[str, Any], hints: Any = None) -> Any:
    """Run the body of `hints_wrapper`: Inductor knows neither the operator nor its hints."""
    return body(*args, **kwargs)


def inductor_code(parts: Partitioned, config: Config, lazy: bool = True) -> Generated:
    """Compile the forward now, and the backward at its first call if it is lazy."""
    return _graph_codes(_InductorGraphs(parts, config), parts, lazy)


def _graph_codes(graphs: "_InductorGraphs", parts: Partitioned, lazy: bool) -> Generated:
    phase = "forward" if parts.backward is not None else "inference"
    forward = graphs.code(parts.forward, phase, graphs.compile_forward)
    if parts.backward is None:
        return Generated(forward, None)
    backward = graphs.code(parts.backward, "backward", partial(graphs.compile_backward, parts.backward))
    donated = donated_positions(parts)
    backward = replace(backward, compile_variant=graphs.compile_backward, lazy=lazy, donated=donated)
    return Generated(forward, backward)


def inductor_text(parts: Partitioned, config: Config) -> Generated:
    """Compile both graphs to text, for a standalone module."""
    graphs = _InductorGraphs(parts, config)
    code = _graph_codes(graphs, parts, lazy=False)
    return Generated(graphs.as_text(code.forward), graphs.as_text(code.backward) if code.backward else None)


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The fields of torch's metadata that Inductor reads while it lowers a backward."""

    bw_donated_idxs: list[int]
    static_input_indices: list[int]


def donated_positions(parts: Partitioned) -> tuple[int, ...]:
    """Return the positions of the backward's inputs whose storage nobody else holds.

    There are none beside a subgraph: Inductor takes them for positions of the subgraph's inputs too, and
    would overwrite what its caller still reads.
    """
    assert parts.backward is not None  # called in training only
    return () if parts.backward.subgraphs() else inputs_that_end(parts, parts.backward)


def inputs_that_end(parts: Partitioned, program: Program) -> tuple[int, ...]:
    """Return the positions of a program's inputs that only the program keeps alive: saved activations."""
    donated = {id(saved.node) for saved in parts.saved if saved.donated}
    return tuple(
        index for index, program_input in enumerate(program.inputs) if id(program_input.node) in donated
    )


class _InductorGraphs:
    """Forward and backward of one target: the backward depends on the strides that the forward chose."""

    def __init__(self, parts: Partitioned, config: Config) -> None:
        self._parts = parts
        self._config = config
        self._strides: Strides = {}
        self._kernels: dict[str, tuple[Kernel, ...]] = {}
        self._measurable: dict[str, Measurable] = {}
        self._compiled: dict[str, tuple[Any, GraphAdapter]] = {}
        self._is_one_partition = True
        with inductor_config_patch(config):
            self._recording = cudagraph_flags()

    def as_text(self, code: GraphCode) -> GraphCode:
        """Compile a graph, and return its code as text: its own text where it computes nothing."""
        assert code.compile is not None  # of every graph before it is text
        code.compile()
        code, name = replace(code, compile=None), code.program.name
        result, adapter = self._compiled[name]
        source = getattr(result, "source_code", "")
        if not source:
            return code
        constants = dict(getattr(result, "constants", None) or {})
        with inductor_config_patch(self._config):
            self._reject_partial_source("async_compile.triton" in source)
            graph = standalone_graph(source, name, f"{name}_graph", constants, adapter)
        graph = replace(graph, lines=(*graph.lines, *aligning_lines(result, f"{name}_graph")))
        return replace(code, standalone=graph)

    def _reject_partial_source(self, has_triton: bool) -> None:
        """Raise UnsupportedError for settings under which the text would be incomplete."""
        names = (*PARTIAL_SOURCE_SETTINGS, *(GPU_KERNEL_SETTINGS if has_triton else ()))
        name = next((name for name, value in kernel_settings(names).items() if value), None)
        if name is not None:
            subject = self._parts.joint.captured.subject
            raise unsupported("export-inductor-setting", subject.span, target=subject.name, setting=name)

    def code(self, program: Program, phase: str, compile_graph: Callable[[], Run]) -> GraphCode:
        """Return the code of a graph, which is compiled when it is first needed."""
        return GraphCode(
            program,
            compile_graph,
            kernels=lambda: self._kernels.get(phase, ()),
            measure=partial(self.measure, phase),
            serialize=partial(self.serialize, phase),
        )

    def serialize(self, phase: str) -> SerializedCode:
        """Return a compiled graph in a form that another process can load; raises NoFingerprintError."""
        return serialize_code(*self._compiled[phase])

    def measure(self, phase: str) -> str:
        """Time each call of a compiled graph; return how it was measured, or why it was not."""
        graph, rows = self._measurable.get(phase), self._kernels.get(phase, ())
        if graph is None or not rows:
            return ""
        timer = graph.timer
        try:
            times = measure_calls(graph, timer)
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
            return f"the {phase} was not measured: {type(error).__name__}: {error}"
        timed = zip(rows, times, strict=True)
        self._kernels[phase] = tuple(
            replace(row, time_us=timed_call.call_us, ending_us=timed_call.ending_us, ran=timed_call.ran)
            for row, timed_call in timed
        )
        return f"measured: median of {RUNS} warm runs on {timer.name}, on random numbers"

    def compile_forward(self) -> Run:
        program = self._parts.forward
        training = self._parts.backward is not None
        module = to_graph_module(program, training)
        context = TracingContext.try_get() or TracingContext(self._fake_mode)
        with tracing(context), context.report_output_strides() as strides:
            result = self._compile(
                module,
                program,
                "forward" if training else "inference",
                _static(program),
                is_inference=not training,
            )
        self._strides |= reported_strides(program, strides)
        return result

    def compile_backward(self, program: Program) -> Run:
        """Compile the backward, or a variant with the same inputs."""
        module = to_graph_module(program, training=True)
        with self._fake_mode:
            lay_out_inputs(module, program, self._strides)
        context: Any = TracingContext(self._fake_mode)
        static = _static_saved(self._parts, self._is_one_partition)
        donated = donated_positions(self._parts)
        context.fw_metadata = _Metadata(list(donated), static)
        module.__dict__["donated"] = donated  # part of Inductor's cache key, which is the module's contents
        with tracing(context):
            phase = "backward" if program is self._parts.backward else "backward of some"
            return self._compile(module, program, phase, static, is_backward=True)

    @property
    def _fake_mode(self) -> FakeTensorMode:
        return self._parts.joint.captured.fake_mode

    def _compile(
        self, module: fx.GraphModule, program: Program, phase: Any, static: Sequence[int], **flags: bool
    ) -> Callable[[list[Any]], Any]:
        reject_objects(program, phase, self._parts.joint.captured.subject)
        with self._fake_mode:
            adapter = prepare_graph(module, program, self._parts.joint.before_passes)
        refresh_objects(module, self._fake_mode)
        # The module's contents are Inductor's cache key: keep it apart from `torch.compile`'s equal graphs.
        module.__dict__["own_lowerings"] = OWN_LOWERINGS
        seen = module.graph.output_node().meta["user_visible_output_idxs"]
        module.__dict__["results_seen"] = tuple(seen)  # these outputs have eager's layout
        placeholders = module.graph.find_nodes(op="placeholder")
        ending = [placeholders[position].target for position in inputs_that_end(self._parts, program)]
        module.__dict__["inputs_that_end"] = dict.fromkeys(ending)  # looked up for each read of an input
        inputs = [node.meta["val"] for node in placeholders]
        try:
            config = self._config | (
                {"fx_graph_cache": False} if _has_sizes_of_hidden_symbols(inputs) else {}
            )
            with (
                inductor_config_patch(config),
                allow_unbacked_symbols(self._fake_mode),
                _inference_mode_of(inputs),
            ):
                result, provenance = compile_with_inductor(
                    module, inputs, self._fake_mode, static_input_idxs=static, **self._recording, **flags
                )
        except AotlensError:
            raise
        except Exception as error:
            subject = self._parts.joint.captured.subject
            raise BackendError(
                f"Inductor failed on the {phase} graph of `{subject.name}`: {type(error).__name__}: "
                f"{_short_message(error)}; choose backend 'eager' to go on without it",
                span=subject.span,
            ) from error
        self._kernels[phase] = kernels_of(result, provenance, program, phase)
        names = inductor_module_globals(result)
        if names is not None:
            handles = tuple(call_numbers(provenance))
            self._measurable[phase] = Measurable(result.source_code, names, handles, tuple(inputs))
        if phase == "forward":
            self._is_one_partition = len(getattr(result, "partition_maps", None) or ()) <= 1
        self._compiled[phase] = result, adapter
        return adapter.code(as_boxed(result))


def _has_sizes_of_hidden_symbols(inputs: Sequence[Any]) -> bool:
    """Return True if an input size depends on a symbol that no input is by itself (`s26 // 2` alone).

    Inductor's graph cache evaluates the symbol at its next lookup, and raises NameError.
    """
    sizes = [value.node.expr for value in inputs if isinstance(value, torch.SymInt)]
    known = {size for size in sizes if size.is_symbol}
    return any(size.free_symbols - known for size in sizes)


def _inference_mode_of(inputs: Sequence[Any]) -> AbstractContextManager[Any]:
    """Return the mode in which Inductor's passes may run writes to inference tensors on fake tensors."""
    inference = any(isinstance(value, torch.Tensor) and value.is_inference() for value in inputs)
    return torch.inference_mode() if inference else nullcontext()


def _short_message(error: Exception) -> str:
    """Return Inductor's message and the operator, without the operator's arguments, which fill pages."""
    message, _, lowered = str(error).partition("\n  target: ")
    return f"{message} (target: {lowered.splitlines()[0].strip()})" if lowered else message


def _static(program: Program) -> list[int]:
    """Return the forward's inputs whose address never changes: parameters and buffers."""
    return [index for index, program_input in enumerate(program.inputs) if stays_in_place(program_input.slot)]


def _static_saved(parts: Partitioned, in_one_piece: bool) -> list[int]:
    """Return the backward's inputs whose address the forward fixes.

    These are values of a forward graph that CUDA graphs record in one piece; arguments may change with each
    call.
    """
    assert parts.backward is not None  # called in training only
    slots = {id(saved.node): saved.owner for saved in parts.saved}
    positions = []
    for index, program_input in enumerate(parts.backward.inputs):
        if isinstance(program_input.slot, SavedInput) and id(program_input.node) in slots:
            owner = slots[id(program_input.node)]
            if stays_in_place(owner) or (owner is None and in_one_piece):
                positions.append(index)
    return positions
