"""Memory of operators that their fake tensors do not show: larger results, and what kernels use meanwhile.

Invariant: a real storage is never smaller than what this module returns for it.
"""

from typing import Any

import torch

from aotlens.build.kernel_memory import RULES, dense_bytes, working_bytes
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.torch_api.operators import pytree

__all__ = ["actual_bytes", "bytes_while_running"]

REDUCED_IN_PLACE = frozenset(
    {"aten::binary_cross_entropy", "aten::mse_loss", "aten::smooth_l1_loss", "aten::soft_margin_loss"}
)
"""Losses whose kernels store the loss of each element in the result before they reduce it: the scalar that
they return keeps that storage."""

NORMS = frozenset({"aten::native_layer_norm", "aten::native_group_norm"})
"""CPU kernels whose statistics are float32 if the weight is, although the input has half the precision."""
STATISTIC_BYTES = 4


ORIGIN = Origin(NO_ORIGIN, "")
"""The origin of nodes for operators of eager code."""


def bytes_while_running(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Return what the operator's CPU kernel allocates and frees again before it returns."""
    if _schema_name(func) not in RULES:
        return 0
    return working_bytes(Node("", func, _as_nodes(args), _as_nodes(kwargs), result, ORIGIN))


def actual_bytes(func: Any, args: tuple[Any, ...], results: list[torch.Tensor]) -> list[int]:
    """Return the size of the storage of each result, 0 where it is the fake tensor's."""
    name = _schema_name(func)
    if name in REDUCED_IN_PLACE and results[0].ndim == 0:
        sizes = torch.broadcast_shapes(args[0].shape, args[1].shape)
        return [dense_bytes(args[0].expand(sizes))]
    if name in NORMS and results[0].device.type == "cpu" and _is_mixed(args):
        return [0, *(statistic.numel() * STATISTIC_BYTES for statistic in results[1:])]
    return [0] * len(results)


def _is_mixed(args: tuple[Any, ...]) -> bool:
    weight = next((arg for arg in args[1:] if isinstance(arg, torch.Tensor)), None)
    return weight is not None and weight.dtype is torch.float32 and args[0].dtype is not torch.float32


def _schema_name(func: Any) -> str | None:
    return getattr(getattr(func, "_schema", None), "name", None)


def _as_nodes(args: Any) -> Any:
    """Return the arguments with a node in place of each tensor, for rules about nodes."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: Node("", None, (), {}, tensor, ORIGIN), args)
