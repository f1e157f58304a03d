"""Call the module text with real arguments like the user's function, and compute the gradients of its
outputs.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from aotlens.analysis.records import IntermediateBaseOf
from aotlens.capture.free_variables.changes import initial_state
from aotlens.capture.free_variables.stores import value_at
from aotlens.capture.records import Captured
from aotlens.capture.subclasses import Path, is_wrapper, rebuild
from aotlens.compiled import Compiled
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import (
    IntermediateBase,
    MutatedInput,
    UserOutput,
    outer_slot,
)
from aotlens.torch_api.operators import pytree
from aotlens.verify.locate.stage_inputs import (
    AFTER,
    InputCloner,
    StageResult,
    copied,
    copies_by_name,
    is_number,
    written_inputs,
)
from aotlens.verify.tensors.clone import Cloner

WRAPPER = "wrapper"


def run_module(compiled: Compiled, values: list[Any], tangents: Mapping[str, Any]) -> StageResult:
    """Call the module text like the user's function; return values, and gradients for these tangents."""
    cloner, captured = InputCloner(), compiled.captured
    flat = [copied(cloner, value) for value in values]
    before = [value.detach() if isinstance(value, Tensor) else value for value in flat]
    mode = torch.is_grad_enabled()
    args, kwargs = _arguments(compiled, flat[: len(captured.flat_inputs)])
    with initial_state(captured.reachable):
        with torch.set_grad_enabled(captured.grad_enabled):
            result = compiled.module.call(*args, **kwargs)
        torch.set_grad_enabled(mode)
        result, rebound = result if captured.structure.rebound else (result, {})
        leaves = [
            *_result_leaves(captured, result),
            *_side_effect_leaves(compiled, args, kwargs),
            *rebound.values(),
        ]
    named_values: dict[str, Any] = {}
    for name, value in zip(captured.output_names, leaves, strict=False):
        named_values |= copies_by_name(name, value)
    for info in written_inputs(compiled):
        now = flat if info.is_resized else before
        named_values |= copies_by_name(captured.inputs[info.index].slot.name, now[info.index], AFTER)
    if tangents:
        named_values |= _wrapper_gradients(compiled, flat, leaves, (cloner, tangents))
    return StageResult(WRAPPER, named_values)


def _result_leaves(captured: Captured, result: Any) -> list[Any]:
    spec = captured.structure.result
    return pytree.tree_leaves(result) if spec is None else spec.flatten_up_to(result)


def _side_effect_leaves(compiled: Compiled, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Return the tensors that the call stored in containers, attributes and closures."""
    structure, leaves = compiled.captured.structure, list[Any]()
    owned = len(compiled.captured.flat_inputs) - structure.arguments.num_leaves if structure.rebindings else 0
    namespaces = {"args": args[owned:], "kwargs": kwargs}
    for rebinding in structure.rebindings:
        store = rebinding.store
        box = store if store is not None else eval(rebinding.expression, namespaces)  # noqa: S307 (our own text)
        leaves.append(value_at(box, rebinding.key))
    return leaves


def _arguments(compiled: Compiled, flat: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the flat inputs in the form that the module text takes."""
    structure = compiled.captured.structure
    if structure.arguments is None or structure.parameters:
        return flat, {}
    owned = len(flat) - structure.arguments.num_leaves
    args, kwargs = pytree.tree_unflatten(flat[owned:], structure.arguments)
    return [*flat[:owned], *args], kwargs


def _wrapper_gradients(
    compiled: Compiled, flat: list[Any], leaves: list[Any], copies: tuple[Cloner, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the gradients of the inputs that the backward differentiates, by name.

    Empty where an output of the graph has no tensor for the caller: then they cannot all be compared.
    """
    captured, (cloner, tangents) = compiled.captured, copies
    leaf_of = {id(copy): leaf for copy, leaf in cloner.leaves}
    differentiated: dict[str, Tensor] = {}
    for out in compiled.joint.gradients:
        slot: Any = out.slot
        if slot.index >= len(flat):  # a synthetic base, which does not exist for the caller
            continue
        tensor = flat[slot.index]
        if compiled.meta.inputs[slot.index].mutates_data:
            tensor = leaf_of.get(id(tensor))
        if captured.inputs[
            slot.index
        ].shares_storage_with:  # autograd may know it as a view of the other input
            continue
        if out.value is not None and tensor is not None and tensor.requires_grad:
            differentiated[captured.inputs[slot.index].slot.name] = tensor
    pairs = zip(compiled.joint.forward_outputs, compiled.joint.differentiable, strict=True)
    slots = (outer_slot(out.slot) for out, differentiable in pairs if differentiable)
    started = {(type(slot), slot.index): slot for slot in slots}.values()
    defined = [slot for index, slot in enumerate(started) if index not in compiled.joint.failing_tangents]
    outputs = [(_output(compiled, slot, flat, leaves), slot.name) for slot in defined]
    if not differentiated or any(tensor is None for tensor, _ in outputs):
        return {}
    gradients = torch.autograd.grad(
        [tensor for tensor, _ in outputs],
        list(differentiated.values()),
        [_tangent(tensor, name, tangents) for tensor, name in outputs],
        allow_unused=True,
    )
    named_gradients: dict[str, Any] = {}
    for name, gradient in zip(differentiated, gradients, strict=True):
        if gradient is not None:
            named_gradients |= copies_by_name(f"gradient of {name}", gradient)
    return named_gradients


def _tangent(tensor: Tensor, name: str, tangents: Mapping[str, Any]) -> Any:
    """Return the gradient of one output; for a wrapper, a wrapper around its inner tensors' gradients."""
    if not is_wrapper(tensor):
        return tangents[name]
    unused = Node(name, None, (), {}, None, Origin(NO_ORIGIN, ""))

    def inner_tangent(path: Path, inner: Any) -> tuple[Node, Any]:
        return unused, tangents[".".join((name, *path))] if is_number(inner) else inner

    with torch.no_grad():
        return rebuild(tensor.detach(), inner_tangent)[1]


def _output(compiled: Compiled, slot: Any, flat: list[Any], leaves: list[Any]) -> Any:
    """Return the caller's tensor for one output of the graph; None if there is none."""
    match slot:
        case UserOutput(index=index):
            return leaves[index] if index < len(leaves) else None
        case MutatedInput(index=index):
            gone = index >= len(flat) or compiled.meta.inputs[index].mutates_metadata
            return None if gone else flat[index]
        case IntermediateBase(index=index):
            views = (
                leaves[info.index]
                for info in compiled.meta.outputs
                if info.base == IntermediateBaseOf(index) and info.requires_grad
            )
            return next((view._base for view in views if view._base is not None), None)
        case _:
            return None
