"""Module text that makes the backward differentiable: what it saves for that, and what it calls.

Invariant: it keeps nothing alive that the call would not keep alive anyway; an input that is gone or has
changed is rejected by name, never read at another value.
"""

from typing import cast

from aotlens.capture.records import AutogradChange, CapturedInput
from aotlens.codegen.records import GraphCode
from aotlens.ir.render import Names
from aotlens.ir.slots import Buffer, FreeTensor, Gradient, Parameter
from aotlens.partition.records import Partitioned
from aotlens.runtime.autograd.leaves import created_leaves, inputs_without_graph_use
from aotlens.runtime.autograd.tangents import BackwardWrappers
from aotlens.runtime.graph_runs import graph_context, uses_functional_rng
from aotlens.runtime.module_text import TextBuilder
from aotlens.runtime.mutations import current_input_slots, written_in_backward

DIFFERENTIABLE_BACKWARD = "differentiable_backward"


def double_backward_obstacle(parts: Partitioned) -> str | None:
    """Return why the function cannot be differentiated twice; None if it can."""
    if any(info.mutates_metadata_or_storage for info in parts.joint.meta.inputs):
        return "it changes an input's sizes, strides or storage"
    return rerecord_obstacle(parts)


def rerecord_obstacle(parts: Partitioned) -> str | None:
    """Return why another backward cannot be recorded from what the call saves; None if it can."""
    joint = parts.joint
    if joint.always_fails:
        return "it fails, in eager too"
    if written_in_backward(parts.backward):
        return "its backward writes to an input"
    if current_input_slots(parts.backward):
        return "its backward reads the current value of an input"
    if inputs_without_graph_use(parts):
        return "its inputs share memory but no common base"
    if created_leaves(parts):
        return "it makes a tensor require grad itself"
    if any(info.autograd is not AutogradChange.NONE for info in joint.meta.inputs):
        return "it detaches an input or makes it a leaf"
    if parts.backward is not None and uses_functional_rng(parts.backward):
        return "its backward uses random numbers"
    wrapped = any(captured_input.wrapped is not None for captured_input in joint.captured.inputs)
    if wrapped or joint.wrapped_gradients or any(joint.wrapped_tangents):
        return "it takes or returns a tensor subclass"
    return None


def unsaved_inputs(parts: Partitioned) -> list[CapturedInput]:
    """Return the graph inputs that are not mutated and that the forward does not save for the backward."""
    saved = {id(graph_input.node) for graph_input in parts.saved_inputs} | parts.joint.changed_inputs
    inputs = parts.joint.captured.inputs
    return [item for item in inputs if item.is_graph_input and id(item.node) not in saved]


def mutated_inputs(parts: Partitioned) -> list[CapturedInput]:
    """Return the mutated graph inputs with a gradient, whose `grad_fn` changes."""
    changed, wanted = parts.joint.changed_inputs, {slot.index for slot in wanted_slots(parts)}
    graph_inputs = (item for item in parts.joint.captured.inputs if item.is_graph_input)
    return [item for item in graph_inputs if id(item.node) in changed and item.slot.index in wanted]


def wanted_slots(parts: Partitioned) -> list[Gradient]:
    """Return the gradients that the backward returns, in order."""
    outputs = parts.backward.outputs_of(Gradient) if parts.backward is not None else ()
    return [cast(Gradient, out.slot) for out in outputs]


def write_saved_for_double(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Write in `forward` how a second derivative finds unsaved inputs, and their former `grad_fn`."""
    if double_backward_obstacle(parts) is not None:
        return
    unsaved, changed = unsaved_inputs(parts), mutated_inputs(parts)
    if unsaved:
        references = ", ".join(_reference(captured_input, names) for captured_input in unsaved)
        builder.add(f"ctx.unsaved = ({references},)")
        versions = ", ".join(_version(captured_input, names) for captured_input in unsaved)
        builder.add(f"ctx.versions = ({versions},)")
    if changed:
        _write_former_inputs(builder, [names.node(item.node) for item in changed if item.node is not None])


def _write_former_inputs(builder: TextBuilder, inputs: list[str]) -> None:
    """Write tensors without memory that keep the `grad_fn` of inputs from before they are written to."""
    former = [f"former_{name}" for name in inputs]
    with builder.block("with torch.enable_grad():"):
        for name, former_name in zip(inputs, former, strict=True):
            builder.add(f"{former_name} = torch.ops.aten._unsafe_view({name}, {name}.size())")
    for former_name in former:
        builder.add(f"{former_name}.data = {former_name}.new_empty(0)")
    builder.add(f"ctx.former = ({', '.join(former)},)")


def _reference(captured_input: CapturedInput, names: Names) -> str:
    name = names.node(captured_input.node) if captured_input.node is not None else ""
    return name if _is_kept_alive(captured_input) else f"weakref.ref({name})"


def _version(captured_input: CapturedInput, names: Names) -> str:
    """Return the text of the input's version: None for an inference tensor, which a buffer may be."""
    if captured_input.node is None or not captured_input.is_tensor or captured_input.argument.is_inference():
        return "None"
    if captured_input.storage is not None and captured_input.storage.is_inference_tensor:
        return "None"
    name = names.node(captured_input.node)
    asks = f"None if {name}.is_inference() else " if isinstance(captured_input.slot, Buffer) else ""
    return f"{asks}{name}._version"


def _is_kept_alive(captured_input: CapturedInput) -> bool:
    """Return True if a reference keeps nothing alive that would otherwise be freed."""
    stays = isinstance(captured_input.slot, (Parameter, Buffer, FreeTensor))
    return stays or not captured_input.is_tensor


def double_backward_call(
    parts: Partitioned, code: GraphCode, names: Names, also_seen: list[str], graph: str
) -> str:
    """Return the expression for gradients that are themselves differentiable.

    `also_seen` are the wrappers that autograd must see, while the graph takes their inner tensors.
    """
    arguments = [names.node(graph_input.node) for graph_input in code.program.inputs]
    if double_backward_obstacle(parts) is not None:
        differentiable = "torch.empty(0, requires_grad=True)"  # saved tensors may require no grad themselves
        return f"DoubleBackward.apply({', '.join([graph, *arguments, differentiable, *also_seen])})"
    unsaved = "ctx.unsaved, ctx.versions" if unsaved_inputs(parts) else "(), ()"
    former = "ctx.former" if mutated_inputs(parts) else "()"
    return f"{DIFFERENTIABLE_BACKWARD}({graph}, [{', '.join(arguments)}], {unsaved}, {former})"


def write_double(builder: TextBuilder, parts: Partitioned, code: GraphCode, names: Names) -> None:
    """Write `differentiable_backward` if possible, else `DoubleBackward`, which rejects it by name."""
    name, reason = parts.joint.captured.subject.name, double_backward_obstacle(parts)
    builder.add("", "")
    if reason is None:
        with builder.block(f"def {DIFFERENTIABLE_BACKWARD}(graph, inputs, unsaved, versions, former):"):
            builder.add("# records the derivatives of the backward; bound when aotlens loads this module")
            builder.add(
                f"raise RuntimeError({no_double_backward_error(name, 'the recording is not at hand')!r})"
            )
        return
    count = len(code.program.inputs)
    with builder.block("class DoubleBackward(torch.autograd.Function):"):
        builder.add("@staticmethod")
        with builder.block("def forward(ctx, graph, *inputs):"), builder.block(graph_context(parts)):
            wrappers = BackwardWrappers(parts, code.program, names)
            wrappers.read_symbols(builder, "inputs[-1]")
            builder.add(f"return tuple({wrappers.wrapped_call(f'graph(list(inputs[:{count}]))')})")
        builder.add("", "@staticmethod")
        with builder.block("def backward(ctx, *gradients):"):
            builder.add(f"raise RuntimeError({no_double_backward_error(name, reason)!r})")


def no_double_backward_error(name: str, reason: str) -> str:
    return (
        f"the compiled backward of `{name}` was itself differentiated (double backward), which is "
        f"not supported here: {reason}; call the function uncompiled where second derivatives are needed"
    )
