"""Storages of operators' results that are larger than their fake tensors.

Invariant: a real storage is never smaller than what this module returns for it.
"""

from typing import Any

import torch

from aotlens.build.kernel_memory import dense_bytes

__all__ = ["actual_bytes"]

REDUCED_IN_PLACE = frozenset(
    {"aten::binary_cross_entropy", "aten::mse_loss", "aten::smooth_l1_loss", "aten::soft_margin_loss"}
)
"""Losses whose kernels store the loss of each element in the result before they reduce it: the scalar that
they return keeps that storage."""

NORMS = frozenset({"aten::native_layer_norm", "aten::native_group_norm"})
"""CPU kernels whose statistics are float32 if the weight is, although the input has half the precision."""
STATISTIC_BYTES = 4


def actual_bytes(func: Any, args: tuple[Any, ...], results: list[torch.Tensor]) -> list[int]:
    """Return the size of the storage of each result, 0 where it is the fake tensor's."""
    name = getattr(getattr(func, "_schema", None), "name", None)
    if name in REDUCED_IN_PLACE and results[0].ndim == 0:
        sizes = torch.broadcast_shapes(args[0].shape, args[1].shape)
        return [dense_bytes(args[0].expand(sizes))]
    if name in NORMS and results[0].device.type == "cpu" and _is_mixed(args):
        return [0, *(statistic.numel() * STATISTIC_BYTES for statistic in results[1:])]
    return [0] * len(results)


def _is_mixed(args: tuple[Any, ...]) -> bool:
    weight = next((arg for arg in args[1:] if isinstance(arg, torch.Tensor)), None)
    return weight is not None and weight.dtype is torch.float32 and args[0].dtype is not torch.float32
