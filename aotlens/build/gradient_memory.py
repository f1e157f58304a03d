"""Which gradients a leaf takes over, and which autograd copies for it.

Invariant: as in torch's `AccumulateGrad` for a leaf whose `grad` is None: a gradient without other owners and
with its leaf's layout is taken over, any other is copied in the leaf's layout.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.build.kernel_memory import dense_bytes, number
from aotlens.ir.program import Node
from aotlens.ir.slots import Gradient, Tangent
from aotlens.partition.records import ForwardBackward


@dataclass(frozen=True, slots=True)
class ReturnedGradient:
    """One gradient returned by the backward."""

    name: str
    """Of the input."""
    node: Node
    copied_bytes: int
    """0 where it is taken over, or passed to the grad_fn of a non-leaf input."""


def returned_gradients(parts: ForwardBackward) -> tuple[ReturnedGradient, ...]:
    """Return one record per gradient in the order of the backward's outputs.

    Of several outputs with one value, the last is its only owner when autograd receives it.
    """
    assert parts.backward is not None  # called for training only
    outputs = [out for out in parts.backward.outputs if isinstance(out.value, Node)]
    later_outputs = Counter(id(out.value) for out in outputs)
    tangents = {  # autograd owns them until the backward returns
        id(program_input.node)
        for program_input in parts.backward.inputs
        if isinstance(program_input.slot, Tangent)
    }
    gradients = []
    for out in outputs:
        node: Any = out.value
        later_outputs[id(node)] -= 1
        leaf = _leaf(parts, out.slot)
        has_other_owner = bool(later_outputs[id(node)]) or id(node) in tangents
        copied = leaf is not None and (has_other_owner or not _fits(node.val, leaf))
        gradients.append(ReturnedGradient(out.slot.name, node, dense_bytes(node.val) if copied else 0))
    return tuple(gradients)


def _leaf(parts: ForwardBackward, slot: Any) -> Any:
    """Return the leaf of the gradient; a gradient of a tensor subclass is returned in parts."""
    return None if not isinstance(slot, Gradient) or slot.inner else parts.joint.leaves.get(slot.index)


def _fits(gradient: Any, leaf: Any) -> bool:
    """Return True if it has the layout that autograd requires for this leaf."""
    if gradient.layout is not torch.strided:
        return True
    if not leaf.is_contiguous() and not _dense(leaf):
        return bool(gradient.is_contiguous())
    pairs = zip(gradient.shape, gradient.stride(), leaf.stride(), strict=True)
    return all(
        number(size) == 1 or number(gradient_step) == number(leaf_step)
        for size, gradient_step, leaf_step in pairs
    )


def _dense(tensor: Any) -> bool:
    """Return True if its elements fill memory without gaps and overlap, in any order."""
    expected = 1
    for step, size in sorted(
        (number(step), number(size)) for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
