"""Module text of the `autograd.Function` that connects forward and backward."""

from typing import Any, NamedTuple

import torch

from aotlens.codegen.records import Generated, GraphCode
from aotlens.ir.program import Node, ProgramOutput
from aotlens.ir.render import Names
from aotlens.ir.slots import (
    DIFFERENTIABLE_OUTPUTS,
    GRADIENTS,
    Gradient,
    LeafGradient,
    RngOffset,
    SavedForBackward,
    SavedInput,
)
from aotlens.joint.records import FailingBackward, JointProgram
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import is_number
from aotlens.partition.storages import storage_root
from aotlens.runtime.autograd.double_backward import (
    double_backward_call,
    write_double,
    write_saved_for_double,
)
from aotlens.runtime.autograd.leaves import created_leaves, inputs_without_graph_use, reshaped_leaves
from aotlens.runtime.autograd.saved_tensors import counts_backward_runs, write_run_count
from aotlens.runtime.autograd.tangents import BackwardWrappers, TangentText, write_stride_coercion
from aotlens.runtime.autograd.undefined_tangents import (
    Conditions,
    write_choice,
    write_undefined_checks,
    write_undefined_error,
)
from aotlens.runtime.graph_text import call_graph, graph_context, graph_name
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.mutations import (
    bind_current_inputs,
    bump_written_versions,
    changes_metadata_only,
    hold_current_inputs,
    hold_written_inputs,
    reject_second_write,
)
from aotlens.runtime.output_views import write_function_views
from aotlens.runtime.rng_state import uses_functional_rng, write_advance, write_reading
from aotlens.runtime.subclasses import (
    outer_inputs,
    outer_outputs,
    output_name,
    write_unwrapping,
    write_wrapping,
)


class GradientPosition(NamedTuple):
    """The position of a gradient among the backward's outputs."""

    key: tuple[type, int]
    """The class of its slot, and its index."""
    output_index: int


def write_function(builder: TextBuilder, parts: Partitioned, code: Generated, names: Names) -> None:
    """Write `CompiledFunction`, and `DoubleBackward`, which rejects a second derivative by name."""
    if code.backward is None or parts.backward is None:
        return
    counted = counts_backward_runs(parts)
    BackwardWrappers(parts, names, code.backward.compile is not None).write_functions(builder)
    builder.add("", "")
    with builder.block("class CompiledFunction(torch.autograd.Function):"):
        builder.add("@staticmethod")
        _forward(builder, parts, code.forward, names, counted)
        builder.add("", "@staticmethod")
        _backward(builder, parts, code.backward, names, counted)
    builder.add("", "", "# `apply` without its Python work per argument for torch.func")
    builder.add("apply_compiled = super(torch.autograd.Function, CompiledFunction).apply")
    if not parts.joint.always_fails:
        write_double(builder, parts, code.backward, names)
        write_undefined_error(builder, parts, graph_name(parts.backward))


def function_outputs(parts: Partitioned) -> list[ProgramOutput]:
    """Return the outputs of `CompiledFunction.apply`, in order."""
    return [out for out in parts.forward.outputs if isinstance(out.slot, DIFFERENTIABLE_OUTPUTS)]


def _forward(builder: TextBuilder, parts: Partitioned, code: GraphCode, names: Names, counted: bool) -> None:
    captured = parts.joint.captured
    inputs = [names.node(graph_input.node) for graph_input in parts.forward.inputs]
    parameters = _forward_parameters(parts, names)
    returned = function_outputs(parts)
    outer = outer_outputs(parts, returned)
    saved_slots = [out for out in parts.forward.outputs if isinstance(out.slot, SavedForBackward)]
    results = [output_name(out) for out in returned]
    results += [output_name(out) for out in parts.forward.outputs if isinstance(out.slot, RngOffset)]
    results += [f"saved_{index}" for index in range(len(saved_slots))]
    with builder.block(f"def forward(ctx, {', '.join(parameters)}):"):
        write_unwrapping(builder, captured, names)
        write_reading(builder, parts, parts.forward, names)
        with builder.block(graph_context(parts)):
            builder.add(f"{_targets(results)} = {call_graph(code, inputs)}")
        write_advance(builder, parts, parts.forward, RngOffset().name)
        backward_wrappers = BackwardWrappers(parts, names)
        backward_wrappers.write_forward(builder, outer)
        write_wrapping(builder, outer, {id(graph_input.node) for graph_input in parts.forward.inputs}, names)
        with builder.step("save for backward", _save_reason(parts)):
            _save(builder, parts, names)
            write_saved_for_double(builder, parts, names)
            if counted:
                builder.add("ctx.spent = False")
            hold_current_inputs(builder, parts, names)
        write_function_views(builder, parts, function_outputs(parts), names)
        with builder.step("mark non-differentiable outputs", "outputs without a gradient"):
            tensors = [
                out.name
                for out in outer
                if not _is_differentiable(parts, out.inner[0]) and _is_tensor(out.inner[0].value)
            ]
            if tensors:
                builder.add(f"ctx.mark_non_differentiable({', '.join(tensors)})")
        builder.add("ctx.set_materialize_grads(False)")
        builder.add(f"return {', '.join(out.name for out in outer)}")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.val, torch.Tensor)


def _forward_parameters(parts: Partitioned, names: Names) -> list[str]:
    """Return one parameter per graph input, then the former views of leaves whose sizes have changed."""
    leaves = [parts.joint.captured.inputs[info.index].node for info in reshaped_leaves(parts)]
    changed = {id(node) for node in leaves}
    named_nodes = [
        (outer_input.name, outer_input.node)
        for outer_input in outer_inputs(parts.joint.captured, parts.forward.inputs, names)
    ]
    named_nodes += [
        (names.node(captured_input.node), captured_input.node)
        for captured_input in inputs_without_graph_use(parts)
        if captured_input.node is not None
    ]
    parameters = (f"now_{name}" if id(node) in changed else name for name, node in named_nodes)
    return [*parameters, *(names.node(node) for node in leaves if node is not None), *created_leaves(parts)]


def _targets(names: list[str]) -> str:
    return f"{names[0]}," if len(names) == 1 else ", ".join(names)


def _save_reason(parts: Partitioned) -> str:
    """Return the step's reason, without a count: `Partition.saved` says which of the values own memory."""
    return f"values chosen by the policy `{parts.policy}`"


def _save(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Save the backward's values in its order, inputs under their own names."""
    assert parts.backward is not None  # written for training only
    outputs = [out for out in parts.forward.outputs if isinstance(out.slot, SavedForBackward)]
    computed = {id(out.value): output_name(out) for out in reversed(function_outputs(parts))}
    computed |= {id(out.value): f"saved_{index}" for index, out in enumerate(outputs)}
    saved = [
        graph_input.node for graph_input in parts.backward.inputs if isinstance(graph_input.slot, SavedInput)
    ]
    aliases = _detached_aliases(parts)
    for index, root in _views_of_inputs(parts, outputs).items():
        builder.add(f"counted_{index} = {names.node(root)}.detach()")
        builder.add(f"counted_{index}.data = saved_{index}")
        computed[id(outputs[index].value)] = f"counted_{index}"
    tensors = [
        computed.get(id(node)) or names.node(node) + aliases.get(id(node), "")
        for node in saved
        if not is_number(node)
    ]
    numbers = [computed.get(id(node)) or names.node(node) for node in saved if is_number(node)]
    tensors += BackwardWrappers(parts, names).saved_arguments()
    if tensors:
        builder.add(f"ctx.save_for_backward({', '.join(tensors)})")
    if numbers:
        builder.add(f"ctx.sizes = ({', '.join(numbers)},)")


def _views_of_inputs(parts: Partitioned, saved: list[ProgramOutput]) -> dict[int, Node]:
    """Return by index the saved values that are views of an input, each with that input's node.

    A later write to the input bumps the version of such a view too.  Inputs on a storage that the call itself
    writes to are excluded: autograd has checked the saved values by then.
    """
    inputs, infos = parts.joint.captured.inputs, parts.joint.meta.inputs
    changed = {id(inputs[info.index].storage) for info in infos if info.is_mutated}
    unchanged = {
        id(captured_input.node)
        for captured_input in inputs
        if captured_input.node is not None and id(captured_input.storage) not in changed
    }
    roots = {index: storage_root(out.value) for index, out in enumerate(saved) if _is_tensor(out.value)}
    return {index: root for index, root in roots.items() if id(root) in unchanged}


def _detached_aliases(parts: Partitioned) -> dict[int, str]:
    """Return, for inputs whose geometry or storage the wrapper changes after the forward, the alias to save.

    The alias shares the version counter if the wrapper bumps that before the forward.
    """
    inputs, infos = parts.joint.captured.inputs, parts.joint.meta.inputs
    changed = [info for info in infos if info.mutates_metadata_or_storage]
    return {
        id(inputs[info.index].node): ".detach()" if changes_metadata_only(info) else ".data"
        for info in changed
    }


def _is_differentiable(parts: Partitioned, out: ProgramOutput) -> bool:
    index = parts.joint.forward_outputs.index(out)
    return parts.joint.differentiable[index]


def _backward(builder: TextBuilder, parts: Partitioned, code: GraphCode, names: Names, counted: bool) -> None:
    program = code.program
    wrappers = BackwardWrappers(parts, names, code.compile is not None)
    tangents = wrappers.tangents(function_outputs(parts), parts.joint.differentiable)
    saved = [graph_input for graph_input in program.inputs if isinstance(graph_input.slot, SavedInput)]
    if (failing := parts.joint.failing) and parts.joint.always_fails:
        with builder.block("def backward(ctx, *tangents):"):
            builder.add(f"raise {failing.error}({failing_message(parts.joint, failing)!r})")
        return
    with builder.block(f"def backward(ctx, {', '.join(tangent.parameter for tangent in tangents)}):"):
        if code.compile is not None:
            _reject_surroundings(builder, parts, [tangent.parameter for tangent in tangents])
        _write_failing(builder, parts, tangents)
        graph = write_choice(builder, parts, tangents, graph_name(program))
        wrappers.read_symbols(builder)
        received = [tangent for tangent in tangents if tangent.nodes]
        gradients = _gradients(parts, names)
        conditions = write_undefined_checks(builder, parts, wrappers, tangents, len(gradients))
        if counted:
            write_run_count(builder, parts)
        with builder.step("coerce tangents", "the backward was traced for tangents with these strides"):
            for tangent in received:
                wrappers.write_coercion(builder, tangent)
                for node in tangent.nodes:
                    write_stride_coercion(builder, names.node(node), node.val)
        write_reading(builder, parts, program, names)
        bind_current_inputs(builder, parts, names)
        with builder.block("if torch.is_grad_enabled():"):
            _unpack(builder, [graph_input.node for graph_input in saved], wrappers.saved_arguments(), names)
            reject_second_write(builder, parts)
            builder.add(
                f"gradients = {double_backward_call(parts, code, names, wrappers.also_seen(received), graph)}"
            )
        with builder.block("else:"):
            tangent_names = [
                names.node(graph_input.node)
                for graph_input in program.inputs
                if not isinstance(graph_input.slot, SavedInput)
            ]
            only_some = bool(wrappers.saved_arguments())
            hold_written_inputs(builder, program, names)
            _write_graph_inputs(
                builder, [graph_input.node for graph_input in saved], tangent_names, code, only_some
            )
            with builder.block(graph_context(parts)):
                builder.add(f"gradients = {wrappers.wrapped_call(f'{graph}(inputs)')}")
        bump_written_versions(builder, parts, program, names)
        write_advance(builder, parts, program, "gradients[-1]")
        _return_gradients(builder, gradients, conditions, uses_functional_rng(program))


def _write_graph_inputs(
    builder: TextBuilder, saved: list[Node], tangents: list[str], code: GraphCode, only_some: bool
) -> None:
    """Give the graph the only references, so that each value's memory is freed after its last use.

    With `only_some`, it takes only the first saved tensors: wrappers are saved after their inner tensors.
    """
    count = sum(not is_number(node) for node in saved)
    tensors = [f"*ctx.saved_tensors{f'[:{count}]' if only_some else ''}"] if count else []
    numbers = ["*ctx.sizes"] if any(is_number(node) for node in saved) else []
    builder.add(f"inputs = [{', '.join([*tensors, *numbers, *tangents])}]")
    if code.donated:
        if_kept = builder.block("if torch._C._autograd._get_current_graph_task_keep_graph():")
        with if_kept, builder.block(f"for index in {code.donated}:"):
            builder.add("inputs[index] = inputs[index].clone()  # the graph overwrites it, and may run again")
    if tensors:
        builder.add("ctx.maybe_clear_saved_tensors()")
    builder.add(f"del {', '.join(tangents)}")


def _write_failing(builder: TextBuilder, parts: Partitioned, tangents: list[TangentText]) -> None:
    """Write the errors of outputs whose own backward raises."""
    if not parts.joint.failing_tangents:
        return
    differentiable = [tangent for tangent in tangents if tangent.differentiable]
    with builder.step("fail as eager", "autograd cannot differentiate some of the outputs"):
        for index, failing in sorted(parts.joint.failing_tangents.items()):
            with builder.block(f"if {differentiable[index].parameter} is not None:"):
                builder.add(f"raise {failing.error}({failing_message(parts.joint, failing)!r})")


def failing_message(joint: JointProgram, failing: FailingBackward) -> str:
    """Return the message of a backward that also raises in eager."""
    results = f" for {', '.join(f'`{name}`' for name in failing.results)}" if failing.results else ""
    return f"the backward of `{joint.captured.subject.name}` fails{results}, in eager too: {failing.message}"


def _reject_surroundings(builder: TextBuilder, parts: Partitioned, tangents: list[str]) -> None:
    """Write checks of contexts that a backend's code does not support, unlike the graph's own text."""
    name = parts.joint.captured.subject.name
    functorch = "torch._C._functorch"
    batched = (
        f"{tangent} is not None and {functorch}.is_legacy_batchedtensor({tangent})" for tangent in tangents
    )
    transform = " or ".join([f"{functorch}.peek_interpreter_stack() is not None", *batched])
    with builder.block(f"if {transform}:"):
        message = (
            f"`{name}`: It looks like you're trying to call a compiled backward function within "
            "vmap/grad/vjp (`is_grads_batched`), which isn't supported; put the transform inside the "
            "compiled function"
        )
        builder.add(f"raise RuntimeError({message!r})")
    if not parts.joint.captured.modes.deterministic:
        with builder.block("if torch.are_deterministic_algorithms_enabled():"):
            message = (
                f"the backward of `{name}` was compiled for a forward without "
                "torch.use_deterministic_algorithms(True), and runs with it; set it before the forward"
            )
            builder.add(f"raise RuntimeError({message!r})")


def _return_gradients(
    builder: TextBuilder, gradients: list[GradientPosition | None], conditions: Conditions, gives_offset: bool
) -> None:
    """Return one gradient per input of the forward, None for inputs that need none."""
    is_all = [position.output_index for position in gradients if position is not None] == list(
        range(len(gradients))
    )
    if is_all and not conditions and not gives_offset:
        builder.add("return gradients if len(gradients) > 1 else gradients[0]")
        return
    builder.add(f"return {', '.join(_gradient_text(position, conditions) for position in gradients)}")


def _gradient_text(position: GradientPosition | None, conditions: Conditions) -> str:
    if position is None:
        return "None"
    condition = conditions.get(position.key)
    return (
        f"gradients[{position.output_index}] if {condition} else None"
        if condition
        else f"gradients[{position.output_index}]"
    )


def _unpack(builder: TextBuilder, saved: list[Node], arguments: list[str], names: Names) -> None:
    tensors = [*(names.node(node) for node in saved if not is_number(node)), *arguments]
    numbers = [names.node(node) for node in saved if is_number(node)]
    if tensors:
        builder.add(f"{_targets(tensors)} = ctx.saved_tensors")
    if numbers:
        builder.add(f"{_targets(numbers)} = ctx.sizes")


def _gradients(parts: Partitioned, names: Names) -> list[GradientPosition | None]:
    """Return for each input of the forward the position of its gradient."""
    assert parts.backward is not None  # written for training only
    slots = (out.slot for out in parts.backward.outputs if isinstance(out.slot, GRADIENTS))
    keys = dict.fromkeys((type(slot), slot.index) for slot in slots)
    order = {key: GradientPosition(key, index) for index, key in enumerate(keys)}
    inputs = outer_inputs(parts.joint.captured, parts.forward.inputs, names)
    positions = [order.get((Gradient, outer_input.index)) for outer_input in inputs]
    positions += [
        order.get((Gradient, captured_input.slot.index)) for captured_input in inputs_without_graph_use(parts)
    ]
    positions += [None] * len(reshaped_leaves(parts))
    leaves: list[GradientPosition | None] = [
        position for position in order.values() if position.key[0] is LeafGradient
    ]
    return positions + (leaves or [None] * len(created_leaves(parts)))
