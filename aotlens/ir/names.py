"""Names of nodes in a module text, and the names that torch's own tracer would give."""

import re
from typing import Any

import torch

from aotlens.ir.program import Node

_NUMBERED = re.compile(r"(out|base|views|new|defined|leaf|version|updated|saved|plain|same|part|s|u|zf)_?\d+")
"""Numbered names in the wrapper's lines (outputs, bases, …) and symbols of sizes."""

_FIXED = frozenset(
    {
        "ARGUMENT_SPEC",
        "CompiledFunction",
        "DoubleBackward",
        "OWNED",
        "PACK",
        "OUTPUT_SPEC",
        "UNPACK",
        "apply",
        "apply_compiled",
        "args",
        "backward_of_some",
        "below_views",
        "call",
        "ctx",
        "deferred",
        "differentiable_backward",
        "gradients",
        "graph",
        "increment_version",
        "inputs",
        "is_new",
        "kwargs",
        "leaves",
        "math",
        "memory",
        "reject_overlap",
        "seen",
        "shared",
        "spec",
        "storage",
        "tensor",
        "tensors_like",
        "torch",
        "vector_bits",
        "version",
        "weakref",
        "without_autocast",
    }
)


def free_name(name: str) -> str:
    """Return the name, prefixed if the module text uses it itself."""
    reserved = name in _FIXED or _NUMBERED.fullmatch(name) is not None
    if reserved or name.startswith(("aten_", "before_", "prims_", "compile_")) or name.endswith("_graph"):
        return f"x_{name}"
    return name


def node_name(name: str) -> str:
    """Return a user's name as a Python identifier: `batch["ids"]` becomes `batch_ids`."""
    identifier = "".join(char if char.isalnum() or char == "_" else "_" for char in name)
    while "__" in identifier:
        identifier = identifier.replace("__", "_")
    identifier = identifier.strip("_")
    return (
        identifier
        if identifier and not identifier[0].isdigit()
        else f"arg_{identifier}"
        if identifier
        else "arg"
    )


aten = torch.ops.aten

WITH_OVERLOAD: dict[Any, str] = {
    aten.sym_size.int: "sym_size_int",
    aten.sym_stride.int: "sym_stride_int",
    aten.sym_numel.default: "sym_numel_default",
    aten.sym_storage_offset.default: "sym_storage_offset_default",
}
"""Operators whose nodes carry the overload's name too."""


def torch_name(node: Node) -> str:
    """Return the node's name with the underscores of its operator: `copy_`, `_to_copy_1`, `sym_size_int`.

    Backends and partition functions that are written for torch's graphs look nodes up by these names.
    """
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
