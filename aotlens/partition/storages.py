"""Which values share a storage, and how large a storage is.

Invariant: memory is counted by storage. A view adds nothing; a value with its own storage adds all of it,
including what its elements do not cover (padding, or the base whose layout a copy preserves).
"""

from functools import cache
from typing import Any

import torch

from aotlens.capture.operators import Kind, describe
from aotlens.ir.program import Node, getitem
from aotlens.joint.records import Joint

aten = torch.ops.aten

COPIES_OPERAND_STORAGE = frozenset(
    {
        aten.as_strided_scatter.default,
        aten.copy.default,
        aten.diagonal_scatter.default,
        aten.select_scatter.default,
        aten.slice_scatter.default,
    }
)
"""Operators that copy the whole storage of their first operand, including the part outside of its
elements."""


@cache
def is_view_operator(op: Any) -> bool:
    """Return True for view operators, and for `_unsafe_view`, which shares its argument's storage too."""
    return hasattr(op, "_schema") and (describe(op).kind is Kind.VIEW or op is aten._unsafe_view.default)


def is_view(node: Node) -> bool:
    """Return True if the value shares the storage of its first argument."""
    if node.op is getitem:
        return is_view(node.args[0])
    if node.op is aten.reshape.default:  # a view where the layout allows one
        return _same_storage(node.val, node.args[0].val)
    return is_view_operator(node.op)


def _same_storage(first: Any, second: Any) -> bool:
    return bool(first.untyped_storage()._cdata == second.untyped_storage()._cdata)


def storage_root(node: Node) -> Node:
    """Return the node that owns the value's storage: the node itself unless it is a view."""
    source: Any = node
    while source.op is not None and is_view(source):
        source = source.args[0]
    return source


def returned_storages(joint: Joint) -> set[int]:
    """Return the identities of the values that own the storages of the outputs which the caller keeps."""
    return {id(storage_root(out.value)) for out in joint.returned_outputs if isinstance(out.value, Node)}


def node_bytes(node: Node) -> int:
    """Return the bytes of the node's storages, with symbolic sizes at their example; numbers have none."""
    if node.op in COPIES_OPERAND_STORAGE:
        return max(value_bytes(node.val), node_bytes(storage_root(node.args[0])))
    return value_bytes(node.val)


def value_bytes(val: Any) -> int:
    """Return the bytes of a value's storages; 0 where the size depends on data."""
    if isinstance(val, torch.Tensor):
        return _storage_bytes(val)
    if isinstance(val, (list, tuple)):
        return sum(value_bytes(item) for item in val)
    return 0


def _storage_bytes(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:  # its inner tensors are counted themselves
        return 0
    size: Any = tensor.untyped_storage().nbytes()
    if isinstance(size, torch.SymInt):
        return int(size.node.hint or 0)
    return int(size)
