"""Loops over rows (`map`, `scan`) under symbolic sizes, for Inductor.

Inductor lays out the results of a loop before it runs, from the sizes among the loop's operands.  Invariant:
each symbol in a result's sizes or strides is an operand.
"""

from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import aten
from aotlens.ir.data_symbols import symbols_of

MORE_OPERANDS = {torch.ops.higher_order.map_impl: 2, torch.ops.higher_order.scan: 3}
"""By operator: the argument that holds operands which every step gets as they are."""


def give_sizes_to_loops(module: fx.GraphModule) -> None:
    """Hand each loop the symbols that its results' sizes are made of."""
    changed = False
    for loop in list(module.graph.nodes):
        if loop.op != "call_function" or loop.target not in MORE_OPERANDS:
            continue
        sizes = _sizes(module.graph, loop)
        if sizes:
            at = MORE_OPERANDS[loop.target]
            loop.update_arg(at, (*loop.args[at], *sizes))
            _take(getattr(module, loop.args[0].target), sizes)
            changed = True
    if changed:
        module.recompile()


def _sizes(graph: fx.Graph, loop: fx.Node) -> list[fx.Node]:
    """A node for each symbol in the results' sizes and strides, read off an operand that has it as a size."""
    wanted = symbols_of(loop.meta["val"])
    found: list[fx.Node] = []
    with graph.inserting_before(loop):
        for operand in loop.all_input_nodes:
            value = operand.meta.get("val")
            for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr in wanted:
                    wanted.remove(size.node.expr)
                    node = graph.call_function(aten.sym_size.int, (operand, dim))
                    node.meta["val"] = size
                    found.append(node)
    return found


def _take(body: Any, sizes: list[fx.Node]) -> None:
    """Further parameters of the loop's function, which it does not read."""
    last = list(body.graph.find_nodes(op="placeholder"))[-1]
    with body.graph.inserting_after(last):
        for at, size in reversed(list(enumerate(sizes))):
            parameter = body.graph.placeholder(f"size_{at}")
            parameter.meta["val"] = size.meta["val"]
    body.recompile()
