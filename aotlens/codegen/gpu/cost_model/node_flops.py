"""Nodes of the graph that Inductor lowers: the program's node that each represents, and its work.

Invariant: passes replace nodes, so the lowered graph differs from our program. A node is identified by its
metadata, or by its neighbours; its work is that of the replacement.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import getitem
from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import Kind, aten, describe, is_operator
from aotlens.codegen.gpu.records import NodeWork
from aotlens.ir.program import is_higher_order
from aotlens.ir.tensor_text import short_dtype
from aotlens.partition.flops import operator_flops

NODE_NAME_KEY = "aotlens_node"
"""The metadata key for the name of the program's node that a graph node computes."""

VIEW_OPS = frozenset({aten.reshape.default, aten._unsafe_view.default, getitem})
"""Operators that Inductor lowers as views although their schemas do not say so."""


NO_ARITHMETIC = frozenset(
    {
        "aten._to_copy.default",
        "aten.clone.default",
        "aten.copy.default",
        "aten.copy_.default",
        "prims.device_put.default",
        "prims.inductor_seed.default",
        "prims.inductor_seeds.default",
    }
)
"""By name, since Inductor registers its own operators late: these move and convert, or generate seeds."""


CONVOLUTIONS = frozenset({aten.convolution.default, aten.convolution_backward.default})


def program_node_name(node: fx.Node) -> str:
    """Return the program's node that a graph node computes; empty for a node that an Inductor pass added."""
    return str(node.meta.get(NODE_NAME_KEY, ""))


def program_node_names(nodes: Iterable[fx.Node]) -> tuple[str, ...]:
    """Return the distinct names of the program's nodes among graph nodes."""
    return tuple(dict.fromkeys(filter(None, map(program_node_name, nodes))))


def in_graph_order(nodes: Iterable[fx.Node]) -> list[fx.Node]:
    """Return the distinct computing nodes and inputs, in graph order."""
    return sorted(node for node in dict.fromkeys(nodes) if node.op != "output")


def is_view(node: fx.Node) -> bool:
    """Return True if the node is a view of its first argument."""
    if node.op != "call_function":
        return False
    target: Any = node.target
    return target in VIEW_OPS or (is_operator(target) and describe(target).kind is Kind.VIEW)


def readers(value: fx.Node, among: frozenset[fx.Node]) -> Iterator[fx.Node]:
    """Yield which of the nodes read a value, also through views of it."""
    waiting, seen = [value], {value}
    while waiting:
        for user in waiting.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if is_view(user):
                waiting.append(user)
            elif user in among:
                yield user


def library_flops(nodes: Iterable[fx.Node]) -> tuple[NodeWork, ...]:
    """Return the work of a library call; empty where an operator has no formula."""
    parts = []
    for node in nodes:
        if node.op != "call_function" or is_view(node):
            continue
        part = node_work(node)
        if not part.is_product and str(node.target) not in NO_ARITHMETIC:
            return ()
        parts.append(part if part.is_product else replace(part, flops=0))
    return tuple(parts)


def node_work(node: fx.Node) -> NodeWork:
    """Return the work of a node in the lowered graph."""
    arguments = [source.meta.get("val") for source in node.all_input_nodes]
    val = node.meta.get("val")
    flops, is_product = 0, False
    if not is_view(node) and not is_higher_order(node.target):
        args, kwargs = _values((node.args, node.kwargs))
        flops, is_product = operator_flops(node.target, args, kwargs, val, arguments)
    dtype = product_dtype(node.target, _dtype(val)) if is_product else _dtype(val)
    return NodeWork(program_node_name(node), flops, dtype, is_product)


def product_dtype(operator: Any, dtype: str) -> str:
    """Return the dtype in which matrix units compute: f32 becomes tf32 where torch's settings allow it.

    By torch's defaults, convolutions may use tf32 and matrix products may not.
    """
    backends = torch.backends
    allowed = backends.cudnn.allow_tf32 if operator in CONVOLUTIONS else backends.cuda.matmul.allow_tf32
    return "tf32" if dtype == "f32" and allowed else dtype


def _values(arguments: Any) -> Any:
    return fx.node.map_arg(arguments, lambda node: node.meta.get("val"))


def _dtype(val: Any) -> str:
    results = val if isinstance(val, (list, tuple)) else (val,)
    tensor = next((result for result in results if isinstance(result, torch.Tensor)), None)
    return short_dtype(tensor.dtype) if tensor is not None else ""
