"""Tensors of the CPU that meet some of the GPU in one operator, where no GPU is there to refuse it.

Invariant: what only C++ makes on the CPU, because it is told that the GPU's tensors are there, is no fault of
the user's; so only values that come from an argument count.
"""

from collections.abc import Iterable
from typing import Any

import torch

from aotlens.capture.records import CapturedInput
from aotlens.errors import UserError, with_location
from aotlens.ir.program import Node, is_higher_order
from aotlens.torch_api.operators import pytree


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MIXED_DEVICE_OPS = _names(
    """_assert_async _assert_tensor_metadata _copy_from _ctc_loss _ctc_loss_backward _foreach_copy
    _foreach_copy_ _index_put_impl _index_put_impl_ _pack_padded_sequence _pack_padded_sequence_backward
    _pad_packed_sequence _to_copy _unsafe_index _unsafe_index_put copy copy_ ctc_loss device_put gru index
    index_put index_put_ lstm repeat_interleave resize_as_ rnn_relu rnn_tanh set_ tensor_split"""
)
"""Operators that a GPU's owner gives tensors of both: transfers, indices, lengths."""


def accepts_mixed_devices(operator: Any) -> bool:
    """Whether tensors of the CPU may stand beside those of the GPU; of others' operators nobody knows."""
    if is_higher_order(operator) or getattr(operator, "namespace", None) not in ("aten", "prims"):
        return True
    return operator.overloadpacket.__name__ in MIXED_DEVICE_OPS


def is_array_on_cpu(value: Any) -> bool:
    """A number of the CPU's goes with the launch."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0


def mixed_device_message(operator: str) -> str:
    """How the message begins."""
    return f"`{operator.removesuffix('.default')}` meets tensors of two devices"


def what_to_do(cpu: str, gpu: str) -> str:
    """The sentence that follows the operator and the place."""
    return f"{cpu} is on the CPU, {gpu} on cuda:0; move it there with `.cuda()` or `.to(device)`"


def reject_mixed_devices(nodes: Iterable[Node], inputs: Iterable[CapturedInput]) -> None:
    """Raises UserError for the first operator that a GPU would not run."""
    names = {given.node: given.slot.name for given in inputs if given.node is not None}
    come_from = dict(names)
    for node in nodes:
        given = list(node.inputs())
        source = next((come_from[one] for one in given if one in come_from and _has_array_on_cpu(one)), None)
        if source is not None:
            come_from[node] = source
        if node.op is None or accepts_mixed_devices(node.op):
            continue
        cpu = next((one for one in given if one in come_from and is_array_on_cpu(one.val)), None)
        gpu = next((one for one in given if _is_on_gpu(one.val)), None)
        if cpu is not None and gpu is not None:
            span = node.origin.place.innermost
            met = with_location(mixed_device_message(node.origin.op), span)
            what = what_to_do(_named(cpu, names, come_from), _named(gpu, names, {}))
            raise UserError(f"{met}: {what}", span=span)


def _has_array_on_cpu(node: Node) -> bool:
    return any(map(is_array_on_cpu, pytree.tree_leaves(node.val)))


def _is_on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def _named(node: Node, names: dict[Node, str], come_from: dict[Node, str]) -> str:
    if node in names:
        return f"`{names[node]}`"
    if node in come_from:
        return f"what is computed from `{come_from[node]}`"
    return f"the result of `{node.origin.op.removesuffix('.default')}`"
