"""The joint stage: run the backward on the recording and assemble the joint program.

Invariant: the backward is what autograd runs for this function on these tensors; nothing here knows a
derivative.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotlens.analysis.records import InputAliasInfo, IntermediateBaseOf, ViewAndMutationMeta
from aotlens.capture.autograd.custom_functions import CurrentInputs
from aotlens.capture.error_translation import translated_errors
from aotlens.capture.free_variables.side_effects import check_backward_side_effects
from aotlens.capture.recorded import Snapshot
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.rng.philox import FunctionalRandom, check_other_random_ops
from aotlens.capture.run import call_boundary, recording
from aotlens.capture.storage import Storage
from aotlens.capture.subclasses import is_wrapper, value_of
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, reachable, with_replaced_values
from aotlens.ir.slots import (
    DataSize,
    Gradient,
    GraphOutput,
    IntermediateBase,
    LeafGradient,
    MutatedInput,
    OuterObject,
    Tangent,
    UserOutput,
    inner_slot,
)
from aotlens.ir.subclasses import Value, Wrapped, leaves_of
from aotlens.joint.data_dependent_sizes import check_sizes, sizes_for_wrapper
from aotlens.joint.failing_backward import run_backward
from aotlens.joint.input_writes import InputState, input_states, write_in_backward, write_in_graph
from aotlens.joint.leaves import gradients_of
from aotlens.joint.records import Differentiated, FailingBackward, JointProgram
from aotlens.joint.shape_only_reads import without_shape_only_reads
from aotlens.joint.subclass_tangents import wrapper_tangent
from aotlens.joint.undefined_tangents import (
    NO_DEPENDENCE,
    BackwardEvents,
    TangentDependence,
    tangent_dependence,
)
from aotlens.torch_api.fake import allow_unbacked_symbols
from aotlens.torch_api.modes import without_autocast
from aotlens.torch_api.patches import CUSTOM_BACKWARD
from aotlens.torch_api.patching import patched

aten = torch.ops.aten


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
        return _unwrapped_outputs(self.gradients)

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
    tensor: Any

    @property
    def differentiable(self) -> bool:
        return isinstance(self.tensor, torch.Tensor) and self.tensor.requires_grad


def build_joint(
    captured: Captured, builder: Recorder, meta: ViewAndMutationMeta, every_result: bool = False
) -> JointProgram:
    """Record the backward, if anything needs one, and assemble the program.

    Its nodes are added to the builder.

    With `every_result` the aliases that the wrapper regenerates are graph outputs too.
    """
    outputs = forward_outputs(captured, builder, meta)
    aliases = alias_values(captured, builder, meta) if every_result else ()
    wanted = wanted_gradients(captured, meta)
    differentiable = [output for output in outputs if output.differentiable]
    training = bool(differentiable)
    backward = Backward()
    if training:
        before = input_states(builder.inputs)
        backward = record_backward(builder, differentiable, wanted, before)
        backward = with_writes(captured, builder, meta, before, backward)
    check_sizes(captured, builder)
    write_in_graph(captured, builder, meta)
    builder.originals.clear()  # the recording outlives the call and must not hold its arguments
    tangents = (graph_input for tangent in backward.tangents for graph_input in tangent.inputs)
    random = random_state(builder)
    forward_inputs = (*graph_inputs(captured), *random.inputs(False))
    inputs = (*forward_inputs, *tangents, *backward.current_inputs, *random.inputs(True))
    results = (
        *_unwrapped_outputs((output.slot, output.value) for output in outputs),
        *random.outputs(False),
        *backward.outputs(),
        *random.outputs(True),
    )
    nodes, replacements = _final_nodes(builder, backward, outputs if training else ())
    results = tuple(_with_replacements(result, replacements) for result in results)
    nodes = reachable([result.value for result in (*results, *aliases)], nodes)
    builder.saved.reject_changed(nodes, replacements)
    return JointProgram(
        captured=captured,
        meta=meta,
        recorded=Snapshot(builder).take(_known_tensors(captured, meta)),
        builder=builder,
        program=Program("joint", inputs, nodes, results),
        training=training,
        differentiable=tuple(
            training and output.differentiable for output in outputs for _ in leaves_of(output.value)
        )
        + (False,) * len(random.outputs(False)),
        aliases=aliases,
        wrapped_tangents=tuple(tangent.wrapped for tangent in backward.tangents),
        wrapped_gradients=backward.wrapped(replacements),
        tangents_by_gradient={
            (type(item.slot), item.slot.index): tangents
            for item, tangents in zip(wanted, backward.tangent_dependence.tangents, strict=False)
        },
        materialises_zeros=backward.tangent_dependence.materialises_zeros,
        user_grad_sources=backward.tangent_dependence.user_grad_sources,
        differentiated=_differentiated(differentiable, wanted, backward),
        failing=backward.failing,
        failing_tangents=_with_output_names(captured, meta, differentiable, backward),
        bumps_in_backward=backward.version_bumps,
    )


def _final_nodes(
    builder: Recorder, backward: Backward, outputs: Sequence[ForwardOutput]
) -> tuple[tuple[Node, ...], dict[int, Node]]:
    """Return the program's nodes, and those that stand for recorded ones, by the identity of these."""
    nodes, restored = tuple(builder.nodes), backward.restored
    if restored:
        nodes, restored = with_replaced_values(nodes, restored)
    if not outputs:
        return nodes, restored
    nodes, rewritten = without_shape_only_reads(builder, nodes, [output.value for output in outputs])
    return nodes, rewritten | {key: rewritten.get(id(node), node) for key, node in restored.items()}


def _with_replacements(output: ProgramOutput, replacements: dict[int, Node]) -> ProgramOutput:
    if type(output.value) is not Node or id(output.value) not in replacements:
        return output
    return replace(output, value=replacements[id(output.value)])


def _known_tensors(captured: Captured, meta: ViewAndMutationMeta) -> Iterator[Any]:
    """The tensors of which later stages may ask what the recording knows."""
    yield from (value for value in captured.outputs if isinstance(value, torch.Tensor))
    yield from (captured_input.argument for captured_input in captured.inputs if captured_input.is_tensor)
    yield from (base.tensor for base in meta.bases if base.tensor is not None)


def _differentiated(
    outputs: list[ForwardOutput], wanted: list["Wanted"], backward: Backward
) -> Differentiated:
    plain = all(tangent.wrapped is None for tangent in backward.tangents)
    inputs = [item for item in wanted if isinstance(item.slot, Gradient)]
    pairs = [pair for pair in zip(outputs, backward.tangents, strict=False) if pair[1].inputs]
    return Differentiated(
        tuple(output.tensor for output, _ in pairs),
        tuple(tangent.inputs[0].node for _, tangent in pairs) if plain else (),
        tuple(item.leaf for item in inputs),
    )


def _with_output_names(
    captured: Captured, meta: ViewAndMutationMeta, outputs: list[ForwardOutput], backward: Backward
) -> dict[int, FailingBackward]:
    return {
        index: replace(failing, results=_output_names(captured, meta, outputs[index].slot))
        for index, failing in backward.failing_tangents.items()
    }


def _output_names(captured: Captured, meta: ViewAndMutationMeta, slot: Any) -> tuple[str, ...]:
    """Return the user's names of the outputs that depend on a graph output."""
    if not isinstance(slot, IntermediateBase):
        return (slot.name,)
    views = (info for info in meta.outputs if info.base == IntermediateBaseOf(slot.index))
    return tuple(captured.output_names[info.index] for info in views)


def random_state(builder: Recorder) -> FunctionalRandom:
    """Return the functional RNG state of the graphs; empty if no random op uses it.

    Raises:
        UnsupportedError: an operator uses a generator whose offset the graphs advance.
    """
    random = builder.random
    if random.is_functional:
        check_other_random_ops(builder.nodes)
    return random.functional


def _unwrapped_outputs(outputs: Iterable[tuple[Any, Any]]) -> tuple[ProgramOutput, ...]:
    """Return program outputs, with a subclass replaced by its inner tensors."""
    return tuple(
        ProgramOutput(inner, inner_slot(slot, path))
        for slot, value in outputs
        for path, inner in leaves_of(value)
    )


def alias_values(
    captured: Captured, builder: Recorder, meta: ViewAndMutationMeta
) -> tuple[ProgramOutput, ...]:
    """Return graph values for the outputs that the wrapper makes, or that are no tensors."""
    values, added = list[tuple[Any, Any]](), builder.adding("joint", "an output that the wrapper regenerates")
    with builder.fake_mode, torch.no_grad(), added:  # as values: the wrapper gives them a `grad_fn`
        for output in meta.outputs:
            if isinstance(output.value, (Node, Wrapped)):
                continue
            tensor, plain = captured.outputs[output.index], output.value
            if isinstance(plain, OuterObject):  # an object of the caller's
                plain = None
            value = value_of(builder, tensor) if isinstance(tensor, torch.Tensor) else plain
            values.append((UserOutput(captured.output_names[output.index], output.index), value))
    return _unwrapped_outputs(values)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A leaf whose gradient the caller may ask for."""

    slot: Gradient | LeafGradient
    leaf: Any


def wanted_gradients(captured: Captured, meta: ViewAndMutationMeta) -> list[Wanted]:
    """Return the inputs that require grad, then the outputs that the function made leaves of."""
    inputs = [
        Wanted(Gradient(captured_input.slot.name, captured_input.slot.index), captured_input.gradient_leaf)
        for captured_input in captured.inputs
        if captured_input.gradient_leaf is not None and captured_input.has_own_gradient
    ]
    results = [
        Wanted(LeafGradient(captured.output_names[info.index], info.index), info.tensor)
        for info in meta.outputs
        if info.is_new_leaf or info.is_alias_leaf
    ]
    return inputs + results


def graph_inputs(captured: Captured) -> tuple[ProgramInput, ...]:
    """Return the flat inputs that the graph takes: no plain values, no duplicates."""
    inputs: list[ProgramInput] = []
    for captured_input in captured.inputs:
        slot: Any = captured_input.slot
        for path, node in leaves_of(captured_input.wrapped or captured_input.node):
            if node is not None and captured_input.is_graph_input:
                inputs.append(ProgramInput(node, inner_slot(slot, path)))
    return tuple(inputs)


def forward_outputs(
    captured: Captured, builder: Recorder, meta: ViewAndMutationMeta
) -> tuple[ForwardOutput, ...]:
    """Return updated inputs, outputs, intermediate bases, then the sizes that the wrapper needs."""
    outputs: list[ForwardOutput] = []
    for info in meta.out_of_graph:
        captured_input = captured.inputs[info.index]
        tensor = _in_entry_geometry(builder, captured_input, info) if info.seen_by_autograd else None
        outputs.append(ForwardOutput(MutatedInput(captured_input.slot.name, info.index), info.value, tensor))
    for output in meta.outputs:
        if isinstance(output.value, (Node, Wrapped)):
            slot = UserOutput(captured.output_names[output.index], output.index)
            outputs.append(ForwardOutput(slot, output.value, None if output.is_new_leaf else output.tensor))
    for index, base in enumerate(meta.bases):
        tensor = None if base.is_cut_off or base.without_gradient else base.tensor
        outputs.append(ForwardOutput(IntermediateBase(f"base_{index}", index), base.value, tensor))
    for symbol in sizes_for_wrapper(builder, meta):
        node = builder.symbols.of_symbol(symbol)
        outputs.append(ForwardOutput(DataSize(str(symbol)), node, None))
    return tuple(outputs)


def _in_entry_geometry(builder: Recorder, captured_input: CapturedInput, info: InputAliasInfo) -> Any:
    """Return the mutated argument in its geometry at entry, as autograd sees it."""
    if info.new_geometry is None or info.is_resized:
        return captured_input.argument
    if info.metadata_mutated_without_grad:
        return _restore_entry_geometry(builder, captured_input)
    reason = "the mutated input with its original sizes and strides"
    with recording(builder, dynamic=False), torch.enable_grad(), builder.origins.in_stage("joint", reason):
        first = captured_input.fake
        return captured_input.argument.as_strided(first.shape, first.stride(), first.storage_offset())


def _restore_entry_geometry(builder: Recorder, captured_input: CapturedInput) -> Any:
    """Undo geometry changes that autograd does not see; nothing reads the argument afterwards."""
    first = captured_input.fake
    with builder.fake_mode, torch.no_grad():
        return captured_input.argument.as_strided_(first.shape, first.stride(), first.storage_offset())


def record_backward(
    recorder: Recorder,
    differentiable: list[ForwardOutput],
    wanted: list[Wanted],
    before: list[InputState | None],
) -> Backward:
    """Run autograd's backward on the recording; `before` holds the states of the inputs before it."""
    recorder.in_backward, dynamic = True, recorder.fake_mode.shape_env is not None
    with recorder.fake_mode:
        tangents = [_tangent(recorder, output) for output in differentiable]
    numbers = allow_unbacked_symbols(recorder.fake_mode)  # the gradient of a loop counts its steps
    events = BackwardEvents(recorder.hooked_edges, recorder.unmaterialised_nodes)
    run, notified = recording(recorder, dynamic), patched(CUSTOM_BACKWARD, events.record_gradients)
    with run, translated_errors(recorder), torch.enable_grad(), without_autocast(), numbers, notified:
        outputs = [output.tensor for output in differentiable]
        leaves, tangent_tensors = [item.leaf for item in wanted], [tangent.tensor for tangent in tangents]

        def differentiate(among: Sequence[int]) -> list[Any]:
            recorder.current_inputs = CurrentInputs(recorder, recorder.inputs)
            starts, start_tangents = (
                [outputs[index] for index in among],
                [tangent_tensors[index] for index in among],
            )
            return call_boundary(lambda: gradients_of(starts, leaves, start_tangents, recorder))

        attempt = run_backward(
            recorder, outputs, differentiate, lambda: input_states(recorder.inputs) == before
        )
        if attempt.gradients is None:
            none = tuple((item.slot, None) for item in wanted if isinstance(item.slot, Gradient))
            failed_dependence = TangentDependence(tangent_dependence(outputs, leaves, events).tangents)
            return Backward(tuple(tangents), none, attempt.failing, tangent_dependence=failed_dependence)
    for index in attempt.failing_tangents:
        tangents[index] = replace(tangents[index], inputs=(), wrapped=None)
    restored = recorder.current_inputs.restore_unwritten()
    with recorder.fake_mode, recorder.adding("joint", "a gradient, regenerated after a write"):
        results = tuple(
            (item.slot, None if gradient is None else value_of(recorder, gradient))
            for item, gradient in zip(wanted, attempt.gradients, strict=True)
            if gradient is not None or isinstance(item.slot, Gradient)
        )
    dependence = tangent_dependence(outputs, leaves, events)
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
    check_backward_side_effects(captured)
    if backward.failing is None or backward.failing_tangents:
        bumps = write_in_backward(builder, meta, before)
        backward = replace(backward, version_bumps=bumps, current_inputs=builder.current_inputs.inputs())
    builder.current_inputs = None
    return backward


def _tangent(recorder: Recorder, output: ForwardOutput) -> TangentInput:
    if not is_wrapper(output.tensor):
        graph_input, tensor = _plain_tangent(recorder, output)
        return TangentInput((graph_input,), tensor)
    slot: Any = output.slot
    inputs, wrapped, tensor = wrapper_tangent(
        output.tensor,
        lambda path, inner: _plain_tangent(recorder, ForwardOutput(inner_slot(slot, path), None, inner)),
    )
    return TangentInput(inputs, tensor, wrapped)


def _plain_tangent(recorder: Recorder, output: ForwardOutput) -> tuple[ProgramInput, Any]:
    """Return a tangent in its output's layout, or contiguous if that layout has gaps."""
    like = output.tensor
    if aten.is_non_overlapping_and_dense.default(like):
        tensor = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    else:
        tensor = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    origin = Origin(
        NO_ORIGIN, "", backward=True, stage="joint", reason=f"the gradient of `{output.slot.name}`"
    )
    node = Node(recorder.name(node_name(f"tangent_{output.slot.name}")), None, (), {}, tensor, origin)
    alias = tensor.detach()
    recorder.track(alias, Storage(node, alias))
    return ProgramInput(node, Tangent(output.slot.name, getattr(output.slot, "inner", ()))), alias
