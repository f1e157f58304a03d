"""The work of one node: the cost of recomputing it.

Invariant: matrix products, convolutions and attention count multiplications and additions by torch's own
formulas; every other operator counts one operation per element that it reads or writes, whichever are more; a
view, a size and one of several outputs count nothing.
"""

from functools import cache
from typing import Any

import torch

from aotlens.ir.program import Node, getitem
from aotlens.partition.rules import is_number
from aotlens.partition.storages import is_view


def node_flops(node: Node) -> int:
    """Return the floating-point operations of one run of the node, with symbolic sizes at their example."""
    if node.op is None or node.op is getitem or is_number(node) or is_view(node):
        return 0
    values = [source.val for source in dict.fromkeys(node.inputs())]
    flops, _ = operator_flops(node.op, node.args, node.kwargs, node.val, values)
    return flops


def operator_flops(
    op: Any, args: Any, kwargs: dict[str, Any], result: Any, read: list[Any]
) -> tuple[int, bool]:
    """Return the work of an operator that is not a view, and whether torch has a formula for it.

    `read` holds the distinct values among its arguments.
    """
    formula = _formula(op)
    if formula is not None:
        return int(formula(*_plain(args), **_plain(kwargs), out_val=_plain(result))), True
    return max(sum(map(_elements, read)), _elements(result)), False


def has_price(node: Node) -> bool:
    """Return True if the work of the node is known: a torch operator without subgraphs."""
    return getattr(node.op, "namespace", None) in (None, "aten", "prims", "quantized")


@cache
def _formula(op: Any) -> Any:
    """Return torch's formula for the operator; the registry is imported when the first costly operator is
    priced."""
    packet = getattr(op, "overloadpacket", None)
    if packet is None:
        return None
    from torch.utils.flop_counter import flop_registry  # only reports need it

    return flop_registry.get(packet)


def _plain(value: Any) -> Any:
    """Convert arguments to what the formulas take: meta tensors, with symbolic sizes at their example."""
    if type(value) is Node:
        return _plain(value.val)
    if isinstance(value, torch.Tensor):
        return torch.empty(tuple(map(_hint, value.shape)), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return _hint(value) if isinstance(value, torch.SymInt) else value


def _hint(size: Any) -> int:
    return int(size.node.hint or 1) if isinstance(size, torch.SymInt) else size


def _elements(val: Any) -> int:
    if isinstance(val, torch.Tensor):
        count = 1
        for size in val.shape:
            count *= _hint(size)
        return count
    if isinstance(val, (list, tuple)):
        return sum(map(_elements, val))
    return 0
