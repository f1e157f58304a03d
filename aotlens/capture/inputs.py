"""Flat inputs as fake tensors, named after the user's arguments.

Invariant: inputs that are one tensor stay one tensor, inputs on one storage stay on one storage, and what
the user's function gets is a leaf exactly when the caller's tensor is one.
"""

from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.recorder import Recorder
from aotlens.capture.records import CapturedInput
from aotlens.capture.storage import Storage
from aotlens.errors import UnsupportedError
from aotlens.ir.origin import NOWHERE, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import FlatInput, SymIntInput
from aotlens.torch_api import FakeTensor, below_views, is_traceable_wrapper_subclass


class _NonLeaf(torch.autograd.Function):
    """Gives a tensor a place in the tape, so that the user's function may write to it in place."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        with below_views():
            return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def make_inputs(
    recorder: Recorder, values: list[Any], slots: tuple[FlatInput, ...], dynamic: bool
) -> tuple[CapturedInput, ...]:
    """One captured input per flat value; call inside the recorder's fake mode."""
    first: dict[int, int] = {}
    storages: dict[int, list[int]] = {}
    found: list[CapturedInput] = []
    for index, (value, slot) in enumerate(zip(values, slots, strict=True)):
        if isinstance(value, torch.Tensor):
            same = first.setdefault(id(value), index)
            if same != index:
                found.append(_duplicate(found[same], slot, same))
                continue
            given = _tensor(recorder, value, slot, dynamic)
            storages.setdefault(given.fake.untyped_storage()._cdata, []).append(index)
        else:
            given = _number(recorder, value, slot)
        found.append(given)
    return _with_sharing(tuple(found), storages)


def _duplicate(first: CapturedInput, slot: FlatInput, index: int) -> CapturedInput:
    return CapturedInput(
        slot,
        first.argument,
        None,
        first.fake,
        first.leaf,
        first.storage,
        is_leaf=first.is_leaf,
        duplicate_of=index,
    )


def _tensor(recorder: Recorder, value: Any, slot: FlatInput, dynamic: bool) -> CapturedInput:
    if is_traceable_wrapper_subclass(value):
        raise UnsupportedError(
            f"tensor subclass `{type(value).__name__}` as the input `{slot.name}`",
            None,
            "pass a plain tensor",
        )
    if value.layout is not torch.strided:
        raise UnsupportedError(
            f"a {value.layout} tensor as the input `{slot.name}`", None, "pass a dense tensor"
        )
    mode = recorder.fake_mode
    fake = value if type(value) is FakeTensor else mode.from_tensor(value, static_shapes=not dynamic)
    node = Node(recorder.name(node_name(slot.name)), None, (), {}, fake, Origin(NOWHERE, ""))
    with torch.no_grad(), below_views():
        leaf = fake.detach()
    argument = leaf
    if value.requires_grad:
        leaf.requires_grad_()
        if not value.is_leaf:
            with torch.enable_grad():
                argument = _NonLeaf.apply(leaf)
    storage = Storage(node, argument)
    recorder.track(argument, storage)
    recorder.symbols.define_sizes(node)
    return CapturedInput(
        slot=slot,
        argument=argument,
        node=node,
        fake=fake,
        leaf=leaf if value.requires_grad else None,
        storage=storage,
        grad_fn=argument.grad_fn,
        version=0 if argument.is_inference() else argument._version,
        is_leaf=value.is_leaf,
    )


def _number(recorder: Recorder, value: Any, slot: FlatInput) -> CapturedInput:
    if isinstance(slot, SymIntInput) and isinstance(value, torch.SymInt):
        node = Node(recorder.name(node_name(slot.name)), None, (), {}, value, Origin(NOWHERE, ""))
        recorder.symbols.define(value, node)
        return CapturedInput(slot, value, node)
    return CapturedInput(slot, value, None)


def _with_sharing(
    inputs: tuple[CapturedInput, ...], storages: dict[int, list[int]]
) -> tuple[CapturedInput, ...]:
    """Tell each storage which inputs stand on it."""
    sharing: dict[int, tuple[int, ...]] = {}
    for indices in storages.values():
        for index in indices:
            sharing[index] = tuple(other for other in indices if other != index)
    result = []
    for index, given in enumerate(inputs):
        if given.storage is not None and given.duplicate_of is None:
            others = sharing.get(index, ())
            overlapping = tuple(other for other in others if overlap(given.fake, inputs[other].fake))
            given.storage.inputs = (index, *overlapping)
            result.append(replace(given, shares_storage_with=others))
        else:
            result.append(given)
    return tuple(result)


def overlap(left: Any, right: Any) -> bool:
    """Whether two tensors on one storage have an element in common; large or symbolic ones are said to."""
    counts = (left.numel(), right.numel())
    if any(isinstance(count, torch.SymInt) for count in counts):
        return True
    if 0 in counts:
        return False
    if _last(left) < left.storage_offset() or _last(left) < right.storage_offset():
        return False
    if _last(right) < left.storage_offset():
        return False
    return max(counts) > EXACT_OVERLAP or bool(_elements(left) & _elements(right))


EXACT_OVERLAP = 1 << 16
"""Up to this many elements, interleaved tensors are compared element by element."""


def _last(tensor: Any) -> int:
    """The highest element of the storage that the tensor reaches."""
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset()) + sum(steps)


def _elements(tensor: Any) -> set[int]:
    found = {int(tensor.storage_offset())}
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        found = {start + at * stride for start in found for at in range(size)}
    return found


def node_name(name: str) -> str:
    """A Python identifier out of a user's name: `batch["ids"]` gives `batch_ids`."""
    kept = "".join(char if char.isalnum() or char == "_" else "_" for char in name)
    while "__" in kept:
        kept = kept.replace("__", "_")
    kept = kept.strip("_")
    return kept if kept and not kept[0].isdigit() else f"arg_{kept}" if kept else "arg"
