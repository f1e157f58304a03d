"""The work of a generated kernel's loops, counted in the loops as Inductor wrote them.

Invariant: each arithmetic operation in a loop body counts once per iteration; loads, stores, conversions and
index computations cost nothing. Work that Inductor repeats in several kernels counts in each.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from torch import fx

from aotlens.codegen.gpu.cost_model.node_flops import in_graph_order, is_view, node_work
from aotlens.codegen.gpu.records import NodeWork
from aotlens.ir.program import is_higher_order

NO_ARITHMETIC = frozenset(
    {
        "call_default",
        "check_bounds",
        "constant",
        "device_assert_async",
        "getvalue",
        "identity",
        "index_expr",
        "indirect_indexing",
        "load",
        "load_seed",
        "masked",
        "output",
        "partial_accumulate",
        "placeholder",
        "store",
        "store_reduction",
        "to_dtype",
        "to_dtype_bitcast",
        "value_expr",
    }
)
TWO = frozenset({"dot", "fma"})
"""Operators with a multiplication and an addition."""


def loop_work(member: Any, is_second_step: bool, number: Callable[[Any], int]) -> list[NodeWork]:
    """Return the work of one of the scheduler's nodes, divided equally among its graph nodes.

    In the second step of a reduction, all work belongs to the last graph node.
    """
    computed = [
        node
        for node in in_graph_order(member.node.origins)
        if node.op == "call_function" and not is_view(node)
    ]
    body = getattr(member, "_body", None)
    if body is None:  # a template; the other nodes went into its arguments
        if any(is_higher_order(node.target) for node in computed):
            return []  # FlexAttention: the blocks computed depend on the mask's data
        parts = [node_work(node) for node in computed]
        return [part for part in parts if part.is_product] or parts[-1:]
    operations = sum(
        count * (2 if name in TWO else 1)
        for name, count in body.op_counts.items()
        if name not in NO_ARITHMETIC
    )
    flops = operations * prod(number(size) for ranges in member.get_ranges() for size in ranges)
    owners: list[fx.Node] = computed[-1:] if is_second_step else computed
    if not owners:
        return [NodeWork("", flops, "", False)]
    part, rest = divmod(flops, len(owners))
    parts = [node_work(node) for node in owners]
    return [
        NodeWork(owner_work.node, part + (index < rest), owner_work.dtype, is_product=False)
        for index, owner_work in enumerate(parts)
    ]
