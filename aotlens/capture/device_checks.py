"""Detect operators that mix CPU and GPU tensors, where no GPU is present to reject them.

Invariant: C++ code creates CPU tensors of its own because the GPU is emulated; only values derived from an
argument are the user's mistake.
"""

from collections.abc import Iterable
from typing import Any

import torch

from aotlens.capture.records import OpenInput
from aotlens.errors import UserError, with_location
from aotlens.ir.program import Node, is_higher_order
from aotlens.torch_api.operators import pytree


def _name_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


MIXED_DEVICE_OPS = _name_set(
    """_assert_async _assert_tensor_metadata _copy_from _ctc_loss _ctc_loss_backward _foreach_copy
    _foreach_copy_ _index_put_impl _index_put_impl_ _pack_padded_sequence _pack_padded_sequence_backward
    _pad_packed_sequence _to_copy _unsafe_index _unsafe_index_put copy copy_ ctc_loss device_put gru index
    index_put index_put_ lstm repeat_interleave resize_as_ rnn_relu rnn_tanh set_ tensor_split"""
)
"""Operators that accept tensors on both devices: transfers, indices, lengths."""


def accepts_mixed_devices(operator: Any) -> bool:
    """Return True if the operator accepts CPU tensors beside GPU tensors; custom operators are assumed to."""
    if is_higher_order(operator) or getattr(operator, "namespace", None) not in ("aten", "prims"):
        return True
    return operator.overloadpacket.__name__ in MIXED_DEVICE_OPS


def _is_array_on_cpu(value: Any) -> bool:
    """Return True for a CPU tensor with dimensions; zero-dimensional ones are passed as kernel arguments."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0


def mixed_device_message(operator: str) -> str:
    """Return the first part of the error message."""
    return f"`{operator.removesuffix('.default')}` meets tensors of two devices"


def mixed_device_hint(cpu: str, gpu: str) -> str:
    """Return the sentence that follows the operator and the source location."""
    return f"{cpu} is on the CPU, {gpu} on cuda:0; move it there with `.cuda()` or `.to(device)`"


def reject_mixed_devices(nodes: Iterable[Node], inputs: Iterable[OpenInput]) -> None:
    """Raise UserError for the first operator that a GPU would reject."""
    names = {
        captured_input.node: captured_input.slot.name
        for captured_input in inputs
        if captured_input.node is not None
    }
    derived_from = dict(names)
    for node in nodes:
        operands = list(node.inputs())
        derived = [operand for operand in operands if operand in derived_from]
        argument_names = [derived_from[operand] for operand in derived if _has_array_on_cpu(operand)]
        if argument_names:
            derived_from[node] = argument_names[0]
        if node.op is None or accepts_mixed_devices(node.op):
            continue
        cpu = [operand for operand in derived if _is_array_on_cpu(operand.val)]
        gpu = [operand for operand in operands if _is_on_gpu(operand.val)]
        if cpu and gpu:
            span = node.origin.location.innermost
            message = with_location(mixed_device_message(node.origin.op), span)
            advice = mixed_device_hint(
                _describe_node(cpu[0], names, derived_from), _describe_node(gpu[0], names, {})
            )
            raise UserError(f"{message}: {advice}", span=span)


def _has_array_on_cpu(node: Node) -> bool:
    return any(map(_is_array_on_cpu, pytree.tree_leaves(node.val)))


def _is_on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def _describe_node(node: Node, names: dict[Node, str], derived_from: dict[Node, str]) -> str:
    if node in names:
        return f"`{names[node]}`"
    if node in derived_from:
        return f"what is computed from `{derived_from[node]}`"
    return f"the result of `{node.origin.op.removesuffix('.default')}`"
