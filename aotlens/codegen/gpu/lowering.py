"""Lower forward and backward graphs with Inductor for a GPU, up to the Triton sources.

Invariant: it runs within `offline_gpu`, in a process of its own. The graphs are prepared as for a CPU
(`aotlens.codegen.inductor`), so the report shows what would run.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import fx

from aotlens.codegen.gpu.attention import attentions_recorded
from aotlens.codegen.gpu.cost_model.node_flops import NODE_NAME_KEY
from aotlens.codegen.gpu.inductor_trace import tracing_inductor
from aotlens.codegen.gpu.launches import Launch, launches_in
from aotlens.codegen.gpu.records import KernelSource, LoweredGraph, RunnableGraph
from aotlens.codegen.gpu.retarget import Retargeting, has_gpu_tensors
from aotlens.codegen.gpu.templates import recording_choices
from aotlens.codegen.graph_adapter import GraphAdapter
from aotlens.codegen.graph_preparation import prepare_graph
from aotlens.codegen.opaque_objects import reject_objects
from aotlens.codegen.saved_layouts import Strides, lay_out_inputs, reported_strides
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.program import Program
from aotlens.model.report import Phase
from aotlens.partition.records import Partitioned
from aotlens.torch_api.dynamo.state import TracingContext, tracing
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.inductor.compile import (
    compile_with_inductor,
    inductor_config_patch,
    inductor_generates_random,
)
from aotlens.torch_api.symbolic import symbol_hints


def lower(parts: Partitioned, config: dict[str, Any]) -> Iterator[LoweredGraph]:
    """Yield the lowered graphs of one target, the forward first. Raises whatever Inductor raises."""
    return (runnable.lowered for runnable in lower_to_run(parts, config))


def lower_to_run(parts: Partitioned, config: dict[str, Any]) -> Iterator[RunnableGraph]:
    """Yield the lowered graphs with what their wrappers need to run."""
    mode, subject = parts.joint.captured.fake_mode, parts.joint.captured.subject
    reject_objects(parts.forward, "forward", subject)
    if parts.backward is not None:
        reject_objects(parts.backward, "backward", subject)
    retargeting = Retargeting(mode, has_gpu_tensors(parts), inductor_generates_random(config))
    retargeting.assumptions += attentions_recorded(parts.joint.captured.calls)
    training = parts.backward is not None
    forward = _Graph(parts.forward, "forward" if training else "inference", config, parts.joint.before_passes)
    with _reporting_strides(mode) as reported:
        lowered = forward.lower(retargeting, {})
    yield lowered
    if parts.backward is not None:
        strides = reported_strides(parts.forward, reported)
        yield _Graph(parts.backward, "backward", config, parts.joint.before_passes).lower(
            retargeting, strides
        )


@contextmanager
def _reporting_strides(mode: FakeTensorMode) -> Iterator[list[Any] | None]:
    """Provide a list that holds the strides of a forward's outputs once it is compiled."""
    context = TracingContext.try_get() or TracingContext(mode)
    with tracing(context), context.report_output_strides() as strides:
        yield strides


@dataclass(frozen=True, slots=True)
class _Graph:
    """One graph to lower."""

    program: Program
    phase: Phase
    config: dict[str, Any]
    recorded: Program | None

    def lower(self, retargeting: Retargeting, strides: Strides) -> RunnableGraph:
        """Compile the program with Inductor, and return its kernels and calls, ready to run."""
        training = self.phase != "inference"
        module = to_graph_module(self.program, training)
        adapter = self._prepare(module, retargeting, strides)
        inputs = retargeting.move(module, self.phase == "forward")
        states = self._states(module, retargeting)
        with (
            tracing_inductor(self.phase) as trace,
            recording_choices() as choices,
            inductor_config_patch(self.config),
            warnings.catch_warnings(),
        ):
            # advice about the settings of this machine, whose GPU is not the target
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
            code, _ = compile_with_inductor(module, inputs, retargeting.mode, **self._flags())
        source = str(getattr(code, "source_code", ""))  # a graph that computes nothing has none
        launches: dict[str, list[Launch]] = {}
        for launch in launches_in(source, symbol_hints(retargeting.mode)):
            launches.setdefault(launch.kernel, []).append(launch)
        lowered = LoweredGraph(
            phase=self.phase,
            source=source,
            kernels=tuple(
                KernelSource(name, self.phase, text, tuple(launches.get(name, ())), choices.unselected(name))
                for name, text in trace.sources.items()
            ),
            calls=tuple(trace.calls),
            assumptions=(*retargeting.assumptions, *choices.assumptions, *dict.fromkeys(trace.unknown)),
            not_fused=trace.not_fused(),
        )
        return RunnableGraph(
            lowered,
            adapter,
            constants=dict(getattr(code, "constants", None) or {}),
            states=states,
            buffers={
                access.buffer: access.node for call in trace.calls for access in call.accesses if access.node
            },
        )

    def _states(self, module: fx.GraphModule, retargeting: Retargeting) -> tuple[int, ...]:
        """Return which RNG states the graph passes, as indices of the forward's extra outputs.

        The forward returns all of them. The backward has an input for each that it reads, in its own order.
        """
        forward_states = retargeting.states()
        if self.phase == "forward":
            return tuple(range(len(forward_states)))
        input_states = [node.meta.get("aotlens_state") for node in module.graph.find_nodes(op="placeholder")]
        return tuple(forward_states.index(state) for state in input_states if state is not None)

    def _prepare(self, module: fx.GraphModule, retargeting: Retargeting, strides: Strides) -> GraphAdapter:
        """Lay out the inputs, and prepare the graph as for any device."""
        inputs = module.graph.find_nodes(op="placeholder")
        with retargeting.mode:
            for program_input, node in zip(self.program.inputs, inputs, strict=True):
                node.meta[NODE_NAME_KEY] = program_input.node.name
            lay_out_inputs(module, self.program, strides)
            return prepare_graph(module, self.program, self.recorded)

    def _flags(self) -> dict[str, bool]:
        if self.phase == "backward":
            return {"is_backward": True}
        return {"is_inference": self.phase == "inference"}
