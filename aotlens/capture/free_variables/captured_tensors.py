"""Free tensors of the function: globals, closure variables, attributes, and those of other modules.

Invariant: while the function runs, each binding of such a tensor holds a fake tensor, so that autograd,
writes and aliases are recorded as for an argument; afterwards each binding is restored.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.autograd.graph_walk import autograd_nodes, grad_fn_or_none
from aotlens.capture.free_variables.state import (
    OutputWithUpdates,
    ReachableState,
    Rebinding,
    read_of_rebound,
    rebound_tensors,
)
from aotlens.capture.free_variables.stores import MAX_ITEMS, bind, value_at
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import CapturedTensor, OpenInput
from aotlens.capture.storage import find_tracked
from aotlens.ir.program import nodes_in
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported

TENSOR_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})
"""Types of tensors that a binding can replace."""


def captured_tensors(reachable: ReachableState, arguments: Sequence[Any]) -> tuple[CapturedTensor, ...]:
    """Return the tensors that the function can read; those that share memory with others come first."""
    by_identity: dict[int, CapturedTensor] = {}
    in_tuples: set[int] = set()
    names = _module_names(reachable)
    for binding in reachable.bindings:
        if not binding.is_read:
            continue
        for store, key, path, tensor in _tensors_at(binding.store, binding.name, binding.name, binding.value):
            if store is None:
                in_tuples.add(id(tensor))
                continue
            known = by_identity.setdefault(
                id(tensor), CapturedTensor(names.get(id(tensor), path), tensor, [])
            )
            known.bindings.append((store, key))
    usable = [free_tensor for key, free_tensor in by_identity.items() if key not in in_tuples]
    storages = Counter(
        _storage(tensor)
        for tensor in (*arguments, *(free_tensor.tensor for free_tensor in usable))
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    )
    usable = [
        replace(free_tensor, shares_no_memory=storages[_storage(free_tensor.tensor)] == 1)
        for free_tensor in usable
    ]
    return tuple(sorted(usable, key=lambda free_tensor: free_tensor.shares_no_memory))


def _storage(tensor: Any) -> int:
    return id(tensor) if hasattr(tensor, "__tensor_flatten__") else int(tensor.untyped_storage()._cdata)


def _module_names(reachable: ReachableState) -> dict[int, str]:
    """Return the user's names of tensors in modules: `model.head.weight`."""
    names: dict[int, str] = {}
    for binding in reachable.bindings:
        if isinstance(binding.value, torch.nn.Module) and binding.kind_text != "the submodule":
            owned = (*binding.value.named_parameters(), *binding.value.named_buffers())
            for fqn, tensor in owned:
                names.setdefault(id(tensor), f"{binding.name}.{fqn}")
    return names


def _tensors_at(store: Any, key: Any, path: str, value: Any) -> Iterator[tuple[Any, Any, str, Any]]:
    """Yield the tensors of one binding and of its containers; the store is None inside a tuple."""
    if type(value) in TENSOR_TYPES and value.layout is torch.strided:
        yield store, key, path, value
    elif type(value) in (list, dict, tuple) and len(value) <= MAX_ITEMS:
        inner = None if type(value) is tuple else value
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for item_key, item in items:
            yield from _tensors_at(inner, item_key, f"{path}[{item_key!r}]", item)


@contextmanager
def bound_to_fakes(
    recorder: Recorder, free_tensors: Sequence[CapturedTensor], captured_inputs: Sequence[OpenInput]
) -> Iterator[None]:
    """Bind the captured inputs' fake tensors in the block."""
    try:
        for free_tensor, captured_input in zip(free_tensors, captured_inputs, strict=True):
            recorder.real_tensors[id(free_tensor.tensor)] = captured_input.argument, free_tensor.tensor
            for store, key in free_tensor.bindings:
                bind(store, key, captured_input.argument)
        yield
    finally:
        for free_tensor, captured_input in zip(free_tensors, captured_inputs, strict=True):
            for store, key in free_tensor.bindings:
                if value_at(store, key) is captured_input.argument:
                    bind(store, key, free_tensor.tensor)


def used_inputs(
    recorder: Recorder,
    inputs: tuple[OpenInput, ...],
    free_tensors: Sequence[CapturedTensor],
    output: OutputWithUpdates,
) -> tuple[OpenInput, ...]:
    """Return the graph's inputs: all except free tensors that the function never reads.

    Raises:
        UnsupportedError: it reads a tensor and binds its name to another one.
    """
    rebound = rebound_tensors(output.rebindings)
    _reject_other_reads(recorder, free_tensors, rebound)
    if not free_tensors:
        return inputs
    first = len(inputs) - len(free_tensors)
    leaves = pytree.tree_leaves((output.result, [value for _, value in output.leaves]))
    results = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and find_tracked(leaf) is not None]
    changed = [
        item.argument
        for item in inputs
        if item.is_tensor and grad_fn_or_none(item.argument) is not item.grad_fn
    ]
    used = {id(read) for node in recorder.nodes for read in nodes_in((node.args, node.kwargs))}
    used |= {id(recorder.tracked(leaf).storage) for leaf in results}
    used |= _leaves_with_gradient([*results, *changed], inputs[first:], used)
    read_otherwise = {id(tensor) for _, tensor in recorder.outside_inputs}
    graph_inputs = list(inputs[:first])
    for free_tensor, captured_input in zip(free_tensors, inputs[first:], strict=True):
        if id(free_tensor.tensor) in rebound and _is_read(recorder, captured_input, used):
            raise read_of_rebound(rebound[id(free_tensor.tensor)])
        if free_tensor.shares_no_memory and not _is_used(recorder, captured_input, used):
            recorder.use_constant_for(captured_input.argument, free_tensor.tensor)  # the backward may read it
            continue
        if id(free_tensor.tensor) in read_otherwise:
            raise unsupported("captured-gradient-lost", recorder.span, name=free_tensor.name)
        if free_tensor.shares_no_memory and captured_input.storage is not None:
            captured_input.storage.inputs = (len(graph_inputs),)
        slot = replace(captured_input.slot, index=len(graph_inputs))
        graph_inputs.append(replace(captured_input, slot=slot, free_tensor=free_tensor.tensor))
    return tuple(graph_inputs)


def _is_used(recorder: Recorder, captured_input: OpenInput, used: set[int]) -> bool:
    """Return True if the tensor or its `.grad` is read, returned, or changed.

    `used` contains ids of nodes, storages and leaves.
    """
    storage, argument = captured_input.storage, captured_input.argument
    if (
        not used.isdisjoint((id(captured_input.node), id(storage), id(captured_input.leaf)))
        or storage is None
    ):
        return True
    return (
        bool(storage.version or storage.metadata_mutations)
        or recorder.tracked(argument).storage is not storage
        or argument.requires_grad is not captured_input.requires_grad
    )


def _is_read(recorder: Recorder, captured_input: OpenInput, used: set[int]) -> bool:
    """Return True if the tensor itself is used, whatever else is on its storage."""
    is_argument = captured_input.duplicate_of is not None
    return is_argument or _is_used(recorder, captured_input, used - {id(captured_input.storage)})


def _reject_other_reads(
    recorder: Recorder, free_tensors: Sequence[CapturedTensor], rebound: Mapping[int, Rebinding]
) -> None:
    """Reject a read, other than by a captured name, of a tensor whose name the function binds to another."""
    captured = {id(free_tensor.tensor) for free_tensor in free_tensors}
    for _, tensor in recorder.real_tensors.values():
        if id(tensor) in rebound and id(tensor) not in captured:
            raise read_of_rebound(rebound[id(tensor)])


def _leaves_with_gradient(
    tensors: list[Any], captured_inputs: Sequence[OpenInput], used: set[int]
) -> set[int]:
    """Return the leaves that the outputs' gradients reach; empty if every input is read anyway.

    A custom `autograd.Function` may return a gradient for a tensor that it never reads.
    """
    if not any(
        captured_input.requires_grad and id(captured_input.node) not in used
        for captured_input in captured_inputs
    ):
        return set()
    starts = [grad_fn_or_none(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]
    leaves = (getattr(autograd_node, "variable", None) for autograd_node in autograd_nodes(starts))
    return {id(leaf) for leaf in leaves if leaf is not None}
