"""Exported graphs: `aot_export_module`, `aot_export_joint_simple`, and joint graphs that are compiled later.

Invariant: the graph is the pipeline's joint program; nothing here traces in another way.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from aotlens.capture.inputs.module_tensors import module_tensors
from aotlens.frontends.compilers import nop
from aotlens.frontends.export_checks import (
    reject_calling_convention,
    reject_inexpressible,
    reject_loss,
    reject_nested_arguments,
    reject_nested_result,
    reject_settings,
)
from aotlens.frontends.export_signature import GraphSignature, describe_graph
from aotlens.frontends.functorch import Decompositions, compile_options
from aotlens.frontends.pre_dispatch import pre_dispatch_module
from aotlens.frontends.untied_inputs import untied_inputs
from aotlens.ir.graph_module import flat_outputs
from aotlens.joint.convention import forward_graph_outputs, joint_module, primals
from aotlens.joint.records import JointProgram
from aotlens.options import Backend, CompileOptions, PartitionFunction, SideEffects
from aotlens.partition.graph_modules import default_partition
from aotlens.pipeline import compile_joint, trace_direct
from aotlens.torch_api.graph_text import write_keywords
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported

aten = torch.ops.aten


def aot_export_module(  # noqa: PLR0913 (torch's signature)
    mod: torch.nn.Module,
    args: Iterable[Any],
    *,
    decompositions: Decompositions | None = None,
    trace_joint: bool,
    output_loss_index: int | None = None,
    pre_dispatch: bool = False,
    dynamic_shapes: bool | None = None,
    kwargs: dict[str, Any] | None = None,
) -> tuple[fx.GraphModule, GraphSignature]:
    """Export a module as a flat functional graph, with parameters and buffers as inputs, and its signature.

    Outputs are the new values of mutated buffers and inputs, then results; with `trace_joint`, the gradients
    of the output `output_loss_index` follow.  With `pre_dispatch`, composite operators are not decomposed.

    Raises:
        RuntimeError: a mutation that the graph cannot express, or a loss that is none.
    """
    if pre_dispatch and trace_joint:
        raise unsupported("export-pre-dispatch-joint")
    reject_settings()
    call_args, call_kwargs = tuple(args), kwargs or {}
    options = _options(decompositions, dynamic=bool(dynamic_shapes))
    with untied_inputs(mod, call_args, call_kwargs) as untied:
        with nullcontext() if trace_joint or pre_dispatch else torch.no_grad():
            joint = trace_direct(mod, untied.args, untied.kwargs, options)
        untied.reject_written(joint)
        reject_inexpressible(joint, trace_joint)
        if trace_joint:
            reject_loss(_result(joint), output_loss_index)
        if pre_dispatch:
            module = pre_dispatch_module(joint, mod, untied.args, untied.kwargs)
        else:
            module = joint_module(joint)
        owned = module_tensors(mod)
    if trace_joint:
        _name_inputs(module)
        _start_from_loss(module, joint)
    in_spec = pytree.tree_structure(((*owned.values(), *call_args), call_kwargs))
    loss_index = output_loss_index if trace_joint else None
    return module, describe_graph(joint, module, in_spec, loss_index)


def aot_export_joint_simple(
    func: Callable[..., Any],
    args: Sequence[Any],
    *,
    trace_joint: bool,
    num_params_buffers: int = 0,
    decompositions: Decompositions | None = None,
) -> fx.GraphModule:
    """Export the joint graph, or inference graph, of a function of flat arguments, with the function's own
    signature.

    Raises:
        RuntimeError: nested arguments or results, a mutated input, a result that is an alias.
    """
    reject_nested_arguments(args)
    reject_settings()
    with untied_inputs(func, tuple(args), {}) as untied, nullcontext() if trace_joint else torch.no_grad():
        joint = trace_direct(func, untied.args, {}, _options(decompositions))
    untied.reject_written(joint)
    reject_inexpressible(joint, trace_joint)
    reject_calling_convention(joint)
    reject_nested_result(joint.captured.structure.result)
    return joint_module(joint)


@dataclass
class JointWithDescriptors:
    """A joint graph that can be edited and compiled with `aot_compile_joint_with_descriptors`.

    Every placeholder, and the output node, has `meta["desc"]`: a slot, or the list of slots, which describes
    each value by the user's name.
    """

    graph_module: fx.GraphModule
    params_spec: list[str]
    """Qualified names of the parameters, in the order of the compiled function's arguments."""
    buffers_spec: list[str]
    in_spec: Any
    """The pytree structure of the compiled function's arguments: all positional ones in one list, and
    keywords."""
    out_spec: Any
    joint: JointProgram

    @property
    def fake_mode(self) -> Any:
        """The mode of the graph's fake tensors, as in torch's record: whoever edits the graph makes new ones
        in it."""
        return self.joint.captured.fake_mode


def aot_export_joint_with_descriptors(  # noqa: PLR0913 (torch's signature)
    stack: ExitStack,
    mod: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    decompositions: Decompositions | None = None,
    keep_inference_input_mutations: bool = False,
    ignore_shape_env: bool = False,
    disable_functionalization: bool = False,
    _record_nn_module_stack: bool = False,
    _disable_torch_fn_metadata_mode: bool = False,
) -> JointWithDescriptors:
    """Export the joint graph of a module, with a descriptor for every input and output.

    `stack` is accepted for compatibility and not used; of the arguments after `decompositions`, only
    `keep_inference_input_mutations` has an effect.
    """
    options = _options(decompositions)
    options = replace(options, keep_input_mutations=keep_inference_input_mutations)
    joint, owned = _joint_of_module(mod, tuple(args), kwargs or {}, options)
    return JointWithDescriptors(
        graph_module=joint_module(joint),
        params_spec=[fqn for fqn, tensor in owned.items() if isinstance(tensor, torch.nn.Parameter)],
        buffers_spec=[fqn for fqn, tensor in owned.items() if not isinstance(tensor, torch.nn.Parameter)],
        in_spec=pytree.tree_structure(([*owned.values(), *args], kwargs or {})),
        out_spec=joint.captured.structure.result,
        joint=joint,
    )


def _joint_of_module(
    mod: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], options: CompileOptions
) -> tuple[JointProgram, dict[str, Any]]:
    """Trace a module, and return its input tensors too; a repeated tensor that is mutated becomes one
    input."""
    with untied_inputs(mod, args, kwargs) as untied:
        joint, owned = trace_direct(mod, untied.args, untied.kwargs, options), module_tensors(mod)
    if untied.written(joint):
        return trace_direct(mod, args, kwargs, options), module_tensors(mod)
    return joint, owned


def aot_compile_joint_with_descriptors(
    jd: JointWithDescriptors,
    *,
    partition_fn: PartitionFunction = default_partition,
    fw_compiler: Backend = nop,
    bw_compiler: Backend | None = nop,
    serializable: bool = False,
) -> Callable[..., Any]:
    """Compile a joint graph, edited or not; the result takes parameters, buffers, and then the arguments.

    Raises:
        RuntimeError: `serializable` is set.
    """
    if serializable:
        name = jd.joint.captured.subject.name
        raise unsupported("export-serializable", jd.joint.captured.subject.span, target=name)
    options = replace(compile_options(fw_compiler, bw_compiler), policy=partition_fn)
    return compile_joint(jd.joint, jd.graph_module, options).call


def _options(decompositions: Decompositions | None, *, dynamic: bool = False) -> CompileOptions:
    options = compile_options(nop, decompositions=decompositions, dynamic=dynamic)
    return replace(options, side_effects=SideEffects.TRACED)


def _result(joint: JointProgram) -> Any:
    """Return the traced function's result, on fake tensors."""
    return pytree.tree_unflatten(list(joint.captured.outputs), joint.captured.structure.result)


def _name_inputs(module: fx.GraphModule) -> None:
    """Name the inputs `arg0_1` and so on, as in an inference graph."""
    index = 0
    for node in module.graph.find_nodes(op="placeholder"):
        if not node.name.startswith("tangents"):
            node.name = node.target = f"arg{index}_1"
            index += 1


def _start_from_loss(module: fx.GraphModule, joint: JointProgram) -> None:
    """Start the backward with a one at the loss, and return only the gradients that exist.

    Raises:
        AssertionError: something requires grad and gets none.
    """
    graph = module.graph
    placeholders = graph.find_nodes(op="placeholder")
    (tangent,) = placeholders[len(primals(joint)) :]
    results = forward_graph_outputs(joint)
    differentiable = {
        out.slot for out, yes in zip(joint.forward_outputs, joint.differentiable, strict=True) if yes
    }
    values = flat_outputs(module)
    loss = next(value for value, out in zip(values, results, strict=False) if out.slot in differentiable)
    with graph.inserting_after(loss):
        ones = graph.create_node("call_function", aten.ones_like.default, (loss,), name="ones_like")
    ones.meta = dict(tangent.meta)
    tangent.replace_all_uses_with(ones)
    graph.erase_node(tangent)
    for out in joint.gradients:
        if out.value is None:
            raise unsupported(
                "export-parameter-without-gradient", joint.captured.subject.span, parameter=out.slot.name
            )
    grads = [value for value in values[len(results) :] if value is not None]
    output = graph.output_node()
    output.args = ((*values[: len(results)], *grads),)
    output.meta["desc"] = [out.slot for out in (*results, *joint.gradients)]
    write_keywords(graph)
    module.recompile()
