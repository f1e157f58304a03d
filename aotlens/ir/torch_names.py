"""Names of nodes as torch's own tracer gives them, for programs that look a value up by its name."""

from typing import Any

import torch

from aotlens.ir.program import Node

aten = torch.ops.aten

WITH_OVERLOAD: dict[Any, str] = {
    aten.sym_size.int: "sym_size_int",
    aten.sym_stride.int: "sym_stride_int",
    aten.sym_numel.default: "sym_numel_default",
    aten.sym_storage_offset.default: "sym_storage_offset_default",
}
"""Operators whose nodes carry the overload's name too."""


def torch_name(node: Node) -> str:
    """The node's own name with the underscores of its operator: `copy_`, `_to_copy_1`, `sym_size_int`."""
    if node.op is None:
        return node.name
    plain = getattr(node.op, "__name__", "").split(".")[0]
    stripped = plain.strip("_")
    full = WITH_OVERLOAD.get(node.op, plain) if node.op.__hash__ is not None else plain
    if not stripped or full == stripped or not node.name.startswith(stripped):
        return node.name
    rest = node.name[len(stripped) :]
    numbered = not rest or (rest[0] == "_" and rest[1:].isdecimal())
    return full + rest if numbered else node.name
