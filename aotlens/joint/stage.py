"""The joint stage: run the backward on the recording and assemble the joint program.

Invariant: the backward is what autograd runs for this function on these tensors; nothing here knows a
derivative.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from aotlens.analysis.records import InputAliasInfo, IntermediateBaseOf, ViewAndMutationMeta
from aotlens.capture.inputs.tensor_inputs import MakeNonLeaf
from aotlens.capture.recorded import Snapshot
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.rng.rng_state import FunctionalRandom, check_other_random_ops
from aotlens.capture.run import recording
from aotlens.capture.subclasses import value_of
from aotlens.ir.program import Node, Program, ProgramInput, ProgramOutput, reachable, with_replaced_values
from aotlens.ir.slots import (
    DataSize,
    Gradient,
    IntermediateBase,
    LeafGradient,
    MutatedInput,
    UserOutput,
    inner_slot,
)
from aotlens.ir.subclasses import Wrapped, leaves_of
from aotlens.joint.backward import (
    Backward,
    ForwardOutput,
    Wanted,
    record_backward,
    unwrapped_outputs,
    with_writes,
)
from aotlens.joint.data_dependent_sizes import check_sizes, sizes_for_wrapper
from aotlens.joint.input_writes import input_states, write_in_graph
from aotlens.joint.records import Differentiated, FailingBackward, JointProgram
from aotlens.joint.shape_only_reads import without_shape_only_reads


def build_joint(
    captured: Captured, builder: Recorder, meta: ViewAndMutationMeta, every_output: bool
) -> JointProgram:
    """Record the backward, if anything needs one, and assemble the program; the builder gets its nodes.

    With `every_output` the aliases that the wrapper regenerates are graph outputs too.
    """
    outputs = forward_outputs(captured, builder, meta)
    aliases = alias_values(captured, builder, meta) if every_output else ()
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
    joint_outputs = (
        *unwrapped_outputs((output.slot, output.value) for output in outputs),
        *random.outputs(False),
        *backward.outputs(),
        *random.outputs(True),
    )
    nodes, replacements = _final_nodes(builder, backward, outputs if training else ())
    joint_outputs = tuple(_with_replacements(output, replacements) for output in joint_outputs)
    nodes = reachable([output.value for output in (*joint_outputs, *aliases)], nodes)
    builder.saved.reject_changed(nodes, replacements)
    return JointProgram(
        captured=captured,
        meta=meta,
        recorded=Snapshot(builder).take(_tensors_read_later(captured, meta)),
        builder=builder,
        program=Program("joint", inputs, nodes, joint_outputs),
        changed_inputs=frozenset(_changed_inputs(captured, meta)),
        leaves={
            index: captured_input.fake
            for index, captured_input in enumerate(captured.inputs)
            if captured_input.is_tensor and captured_input.is_leaf and captured_input.requires_grad
        },
        training=training,
        differentiable=(*_differentiable(outputs), *(False for _ in random.outputs(False))),
        aliases=aliases,
        wrapped_tangents=tuple(tangent.wrapped for tangent in backward.tangents),
        wrapped_gradients=backward.wrapped(replacements),
        dependence=backward.tangent_dependence,
        differentiated=_differentiated(differentiable, wanted, backward),
        failing=backward.failing,
        failing_tangents=_with_output_names(captured, meta, differentiable, backward),
        bumps_in_backward=backward.version_bumps,
    )


def _differentiable(outputs: Iterable[ForwardOutput]) -> Iterator[bool]:
    """Yield for each result of the forward whether it has a gradient; a subclass has several results."""
    return (output.differentiable for output in outputs for _ in leaves_of(output.value))


def _final_nodes(
    builder: Recorder, backward: Backward, outputs: Sequence[ForwardOutput]
) -> tuple[tuple[Node, ...], dict[int, Node]]:
    """Return the program's nodes, and the replacement of each recorded node that changed, by its identity."""
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


def _changed_inputs(captured: Captured, meta: ViewAndMutationMeta) -> Iterator[int]:
    """Yield the identities of the graph inputs (of a subclass the inner ones) whose values change."""
    for info in meta.inputs:
        if info.mutates_data:
            before = captured.inputs[info.index].nodes
            # of a wrapper perhaps only some inner tensors change; a plain tensor is one node, which does
            after = info.value.nodes() if isinstance(info.value, Wrapped) else (None,) * len(before)
            yield from (id(old) for old, new in zip(before, after, strict=True) if old is not new)


def _tensors_read_later(captured: Captured, meta: ViewAndMutationMeta) -> Iterator[Any]:
    """Yield the tensors whose state later stages read: outputs, inputs, and bases of regenerated outputs."""
    yield from (value for value in captured.outputs if isinstance(value, torch.Tensor))
    yield from (captured_input.argument for captured_input in captured.inputs if captured_input.is_tensor)
    yield from (base.tensor for base in meta.bases if base.tensor is not None)


def _differentiated(outputs: list[ForwardOutput], wanted: Wanted, backward: Backward) -> Differentiated:
    plain = all(tangent.wrapped is None for tangent in backward.tangents)
    pairs = [pair for pair in zip(outputs, backward.tangents, strict=False) if pair[1].inputs]
    return Differentiated(
        tuple(output.tensor for output, _ in pairs),
        tuple(tangent.inputs[0].node for _, tangent in pairs) if plain else (),
        tuple(leaf for slot, leaf in wanted.items() if isinstance(slot, Gradient)),
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
            value = value_of(builder, tensor) if isinstance(tensor, torch.Tensor) else plain
            values.append((UserOutput(captured.output_names[output.index], output.index), value))
    return unwrapped_outputs(values)


def wanted_gradients(captured: Captured, meta: ViewAndMutationMeta) -> Wanted:
    """Return the inputs that require grad, then the outputs that the function made leaves of."""
    wanted: Wanted = {
        Gradient(captured_input.slot.name, captured_input.slot.index): captured_input.gradient_leaf
        for captured_input in captured.inputs
        if captured_input.gradient_leaf is not None and captured_input.has_own_gradient
    }
    for info in meta.outputs:
        if info.is_leaf:
            wanted[LeafGradient(captured.output_names[info.index], info.index)] = info.tensor
    return wanted


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
            outputs.append(ForwardOutput(slot, output.value, None if output.is_leaf else output.tensor))
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
    first = captured_input.fake
    if info.metadata_mutated_without_grad:
        with builder.fake_mode, torch.enable_grad():
            return MakeNonLeaf.apply(captured_input.argument, first.detach)
    reason = "the mutated input with its original sizes and strides"
    with recording(builder, dynamic=False), torch.enable_grad(), builder.origins.in_stage("joint", reason):
        return captured_input.argument.as_strided(first.shape, first.stride(), first.storage_offset())
