"""Tensors that the function reaches by itself: globals, closure variables, attributes, other modules' own.

Invariant: while the function runs, each place that holds one holds a fake tensor in its stead, so that
autograd, writes and shared memory are seen as for an argument; afterwards each place is as it was.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.autograd.graph_walk import autograd_nodes, grad_fn_of
from aotlens.capture.free_variables.namespaces import namespace, value_at
from aotlens.capture.free_variables.reachable import MAX_ITEMS, ReachableState
from aotlens.capture.graph import TRACKED_ATTRIBUTE
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import CapturedInput, CapturedTensor
from aotlens.errors import UnsupportedError
from aotlens.ir.program import nodes_in
from aotlens.ir.slots import FlatInput, FreeTensor
from aotlens.torch_api.fake import FakeTensor
from aotlens.torch_api.operators import pytree

KINDS = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})
"""Types of tensors that a place can hold for the recording."""


def captured_tensors(around: ReachableState, arguments: Sequence[Any]) -> tuple[CapturedTensor, ...]:
    """The tensors at the places that a function can read; first those that share memory with anything."""
    found: dict[int, CapturedTensor] = {}
    fixed: set[int] = set()
    names = _module_names(around)
    for place in around.places:
        if place.within:  # found with its container
            continue
        for store, key, path, tensor in _held(place.store, place.name, place.name, place.value):
            if store is None:
                fixed.add(id(tensor))
                continue
            known = found.setdefault(id(tensor), CapturedTensor(names.get(id(tensor), path), tensor, []))
            known.places.append((store, key))
    usable = [one for key, one in found.items() if key not in fixed]
    storages: dict[int, int] = {}
    for tensor in (*arguments, *(one.tensor for one in usable)):
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            storage = _storage(tensor)
            storages[storage] = storages.get(storage, 0) + 1
    usable = [replace(one, alone=storages[_storage(one.tensor)] == 1) for one in usable]
    return tuple(sorted(usable, key=lambda one: one.alone))


def _storage(tensor: Any) -> int:
    return id(tensor) if hasattr(tensor, "__tensor_flatten__") else int(tensor.untyped_storage()._cdata)


def _module_names(around: ReachableState) -> dict[int, str]:
    """The user's names of tensors that hang in modules: `model.head.weight`."""
    names: dict[int, str] = {}
    for place in around.places:
        if isinstance(place.value, torch.nn.Module) and place.what != "the submodule":
            owned = (*place.value.named_parameters(), *place.value.named_buffers())
            for fqn, tensor in owned:
                names.setdefault(id(tensor), f"{place.name}.{fqn}")
    return names


def _held(store: Any, key: Any, path: str, value: Any) -> Iterator[tuple[Any, Any, str, Any]]:
    """The tensors at one place and in the containers there; a tuple's have no place of their own (None)."""
    if type(value) in KINDS and value.layout is torch.strided:
        yield store, key, path, value
    elif type(value) in (list, dict, tuple) and len(value) <= MAX_ITEMS:
        inner = None if type(value) is tuple else value
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for at, item in items:
            yield from _held(inner, at, f"{path}[{at!r}]", item)


@contextmanager
def bound_to_fakes(
    recorder: Recorder, reached: Sequence[CapturedTensor], given: Sequence[CapturedInput]
) -> Iterator[None]:
    """Within it, the places hold the captured inputs' fake tensors."""
    try:
        for one, stand_in in zip(reached, given, strict=True):
            recorder.stand_in_for(one.tensor, stand_in.argument)
            for store, key in one.places:
                namespace(store)[key] = stand_in.argument
        yield
    finally:
        for one, stand_in in zip(reached, given, strict=True):
            for store, key in one.places:
                if value_at(store, key) is stand_in.argument:
                    namespace(store)[key] = one.tensor


def captured_tensor_slots(reached: Sequence[CapturedTensor], first: int) -> list[FlatInput]:
    return [FreeTensor(one.name, first + at) for at, one in enumerate(reached)]


def used_inputs(
    recorder: Recorder, inputs: tuple[CapturedInput, ...], reached: Sequence[CapturedTensor], result: Any
) -> tuple[CapturedInput, ...]:
    """The inputs that the graph takes: without the tensors that the function could read and did not."""
    if not reached:
        return inputs
    first = len(inputs) - len(reached)
    results = [leaf for leaf in pytree.tree_leaves(result) if _is_seen(leaf)]
    used = {id(node) for node in _read_nodes(recorder)}
    used |= {id(recorder.tracked(leaf).storage) for leaf in results}
    used |= _with_gradient([*results, *_changed(inputs)], inputs[first:], used)
    by_itself = {id(tensor) for _, tensor in recorder.outside}
    found = list(inputs[:first])
    for one, given in zip(reached, inputs[first:], strict=True):
        if one.alone and given.node is not None and not _is_used(recorder, given, used):
            object.__setattr__(given.node, "constant", one.tensor)  # the backward may read it
            recorder.nodes.insert(0, given.node)
            continue
        if id(one.tensor) in by_itself:
            raise UnsupportedError(
                f"a function that reads `{one.name}`, which requires grad, by another way as well that is "
                "not seen, so that its gradient would be lost",
                recorder.span,
                "read it by one name, or pass it as an argument",
            )
        if one.alone and given.storage is not None:
            given.storage.inputs = (len(found),)
        slot = replace(given.slot, index=len(found))
        found.append(replace(given, slot=slot, outside=one.tensor))
    return tuple(found)


def _is_seen(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and hasattr(leaf, TRACKED_ATTRIBUTE)


def _is_used(recorder: Recorder, given: CapturedInput, used: set[int]) -> bool:
    """Whether it, or its `.grad`, is read, returned, or left otherwise than it was.

    `used` holds nodes, storages, leaves.
    """
    storage, argument = given.storage, given.argument
    if argument._backward_hooks or argument._post_accumulate_grad_hooks:
        return True
    if id(argument) in recorder.met_gradients:
        return True
    if not used.isdisjoint((id(given.node), id(storage), id(given.leaf))) or storage is None:
        return True
    return (
        bool(storage.version or storage.moves)
        or storage.new_bytes is not None
        or recorder.tracked(argument).storage is not storage
        or argument.requires_grad is not given.requires_grad
    )


def _read_nodes(recorder: Recorder) -> Iterator[Any]:
    for node in recorder.nodes:
        yield from nodes_in((node.args, node.kwargs))


def _changed(inputs: Sequence[CapturedInput]) -> Iterator[Any]:
    """Inputs with another history than they came with."""
    for given in inputs:
        if isinstance(given.argument, torch.Tensor) and grad_fn_of(given.argument) is not given.grad_fn:
            yield given.argument


def _with_gradient(tensors: list[Any], given: Sequence[CapturedInput], used: set[int]) -> set[int]:
    """Leaves whose gradient the results lead to, looked for only where one is not read as well.

    A custom `autograd.Function` may give a gradient for what it never reads.
    """
    if not any(one.requires_grad and id(one.node) not in used for one in given):
        return set()
    starts = [grad_fn_of(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]
    return {id(getattr(place, "variable", None)) for place in autograd_nodes(starts)}
