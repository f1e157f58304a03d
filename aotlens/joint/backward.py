"""Run autograd's backward on the recording: its tangents, its gradients, and its writes to inputs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.autograd.custom_functions import CurrentInputs
from aotlens.capture.free_variables.side_effects import check_backward_side_effects
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, InputState
from aotlens.capture.subclasses import Path, is_wrapper, rebuild, value_of
from aotlens.ir.program import Node, ProgramInput, ProgramOutput
from aotlens.ir.slots import Gradient, GraphOutput, LeafGradient, Tangent, inner_slot
from aotlens.ir.subclasses import Value, Wrapped, leaves_of
from aotlens.joint.differentiation import differentiate, recording_autograd
from aotlens.joint.failing_backward import run_backward
from aotlens.joint.input_writes import input_states, write_in_backward
from aotlens.joint.records import FailingBackward
from aotlens.joint.undefined_tangents import (
    NO_DEPENDENCE,
    BackwardEvents,
    TangentDependence,
    tangent_dependence,
)
from aotlens.torch_api.fake.tensors import allow_unbacked_symbols
from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import CUSTOM_BACKWARD


@dataclass(frozen=True, slots=True)
class TangentInput:
    """The tangent of one output."""

    inputs: tuple[ProgramInput, ...]
    """One, or several for a subclass."""
    tensor: Any
    """The fake tensor that autograd runs with."""
    wrapped: Wrapped | None = None


@dataclass(frozen=True, slots=True)
class Backward:
    """A recorded backward."""

    tangents: tuple[TangentInput, ...] = ()
    gradients: tuple[tuple[Gradient | LeafGradient, Value | None], ...] = ()
    failing: FailingBackward | None = None
    failing_tangents: dict[int, FailingBackward] = field(default_factory=dict)
    tangent_dependence: TangentDependence = NO_DEPENDENCE
    current_inputs: tuple[ProgramInput, ...] = ()
    """The inputs that the backward reads as they are when it runs."""
    version_bumps: dict[int, int] = field(default_factory=dict)
    """As `bumps_in_backward` of the joint program."""
    restored: dict[int, Node] = field(default_factory=dict)
    """By identity, nodes of inputs that the backward seemed to read anew, and what it reads instead."""

    def outputs(self) -> tuple[ProgramOutput, ...]:
        """Return the gradients as outputs of the joint program, one for each inner tensor of a subclass."""
        return unwrapped_outputs(self.gradients)

    def wrapped(self, replacements: dict[int, Node]) -> dict[tuple[type, int], Wrapped]:
        """Return the gradients that are wrappers, by their slots, with these nodes for recorded ones."""

        def change(_: tuple[str, ...], node: Node) -> Node:
            return replacements.get(id(node), node)

        pairs = ((slot, value) for slot, value in self.gradients if isinstance(value, Wrapped))
        return {(type(slot), slot.index): value.map(change) for slot, value in pairs}


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """A graph output and its fake tensor in autograd."""

    slot: GraphOutput
    value: Any
    """The node, the `Wrapped` of a subclass, or a plain value."""
    tensor: Any
    """The fake tensor that autograd differentiates; None for outputs that have no tangent, such as sizes."""

    @property
    def differentiable(self) -> bool:
        return isinstance(self.tensor, torch.Tensor) and self.tensor.requires_grad


Wanted = dict[Gradient | LeafGradient, Any]
"""The leaves whose gradients the caller may ask for, by the slots of these."""


def record_backward(
    recorder: Recorder,
    differentiable: list[ForwardOutput],
    wanted: Wanted,
    before: list[InputState | None],
) -> Backward:
    """Run autograd's backward on the recording; `before` holds the states of the inputs before it."""
    recorder.in_backward = True
    with recorder.fake_mode:
        tangents = [_tangent(recorder, output) for output in differentiable]
    outputs = [output.tensor for output in differentiable]
    tangent_tensors = [tangent.tensor for tangent in tangents]
    leaves = {(type(slot), slot.index): leaf for slot, leaf in wanted.items()}
    numbers = allow_unbacked_symbols(recorder.fake_mode)  # the gradient of a loop counts its steps
    events = BackwardEvents(recorder.hooked_edges, recorder.unmaterialised_nodes)

    def run(among: Sequence[int]) -> list[Any]:
        recorder.current_inputs = CurrentInputs(recorder, recorder.inputs)
        starts, start_tangents = ([tensors[i] for i in among] for tensors in (outputs, tangent_tensors))
        return differentiate(recorder, starts, list(leaves.values()), start_tangents)

    with recording_autograd(recorder), numbers, patched(CUSTOM_BACKWARD, events.record_gradients):
        attempt = run_backward(recorder, outputs, run, lambda: input_states(recorder.inputs) == before)
    dependence = tangent_dependence(outputs, leaves, events)
    if attempt.gradients is None:
        none = tuple((slot, None) for slot in wanted if isinstance(slot, Gradient))
        failed_dependence = TangentDependence(dependence.tangents)
        return Backward(tuple(tangents), none, attempt.failing, tangent_dependence=failed_dependence)
    for index in attempt.failing_tangents:
        tangents[index] = replace(tangents[index], inputs=(), wrapped=None)
    restored = recorder.current_inputs.restore_unwritten()
    with recorder.fake_mode, recorder.adding("joint", "a gradient, regenerated after a write"):
        # every input has a row, perhaps with None: the compiled backward returns one value for each
        results = tuple(
            (slot, None if gradient is None else value_of(recorder, gradient))
            for slot, gradient in zip(wanted, attempt.gradients, strict=True)
            if gradient is not None or isinstance(slot, Gradient)
        )
    return Backward(
        tangents=tuple(tangents),
        gradients=results,
        failing=attempt.failing,
        failing_tangents=attempt.failing_tangents,
        tangent_dependence=dependence,
        restored=restored,
    )


def with_writes(
    captured: Captured,
    builder: Recorder,
    meta: ViewAndMutationMeta,
    before: list[InputState | None],
    backward: Backward,
) -> Backward:
    """Add the backward's writes to inputs; `before` holds the inputs' states before it."""
    check_backward_side_effects(captured, builder)
    if backward.failing is None or backward.failing_tangents:
        bumps = write_in_backward(builder, meta, before)
        backward = replace(backward, version_bumps=bumps, current_inputs=builder.current_inputs.inputs())
    builder.current_inputs = None
    return backward


def _tangent(recorder: Recorder, output: ForwardOutput) -> TangentInput:
    """Return the tangent of an output; of a subclass, with the metadata that it proposes for its tangent."""
    graph_inputs: list[ProgramInput] = []

    def plain(path: Path, like: Any) -> tuple[Node, Any]:
        slot = inner_slot(output.slot, path)
        node, alias = recorder.new_tangent(
            like, f"tangent_{slot.name}", "joint", f"the gradient of `{slot.name}`"
        )
        graph_inputs.append(ProgramInput(node, Tangent(slot.name, path)))
        return node, alias

    wrapped, like = None, output.tensor
    if is_wrapper(like):
        like = like.detach()
        if hasattr(like, "__coerce_tangent_metadata__"):
            like = like.__coerce_tangent_metadata__()
        wrapped, tensor = rebuild(like, plain)
    else:
        _, tensor = plain((), like)
    return TangentInput(tuple(graph_inputs), tensor, wrapped)


def unwrapped_outputs(outputs: Iterable[tuple[Any, Any]]) -> tuple[ProgramOutput, ...]:
    """Return program outputs, with a subclass replaced by its inner tensors."""
    return tuple(
        ProgramOutput(inner, inner_slot(slot, path))
        for slot, value in outputs
        for path, inner in leaves_of(value)
    )
