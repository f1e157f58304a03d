"""Inputs with the lazy negative bit, for Inductor, whose kernels read memory as it is.

Invariant: the graph is given what lies in memory, without the bit, and negates it by itself, in what it reads
and in what it writes back.
"""

from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import aten


def spell_out_negation(module: fx.GraphModule) -> tuple[int, ...]:
    """Make the graph take such inputs as they lie in memory; their positions."""
    graph = module.graph
    inputs = list(graph.find_nodes(op="placeholder"))
    found = tuple(at for at, node in enumerate(inputs) if _is_negated(node.meta.get("val")))
    for at in found:
        given = inputs[at]
        value = given.meta["val"]
        with torch.no_grad():
            given.meta["val"] = aten._neg_view.default(value)
        with graph.inserting_before(inputs[-1].next):
            negated = graph.call_function(aten.neg.default, (given,))
        negated.meta = {**given.meta, "val": aten.neg.default(given.meta["val"])}
        for user in list(given.users):
            if user is negated:
                continue
            if user.target is aten.copy_.default and user.args[0] is given:
                _negate_written(graph, user)
            else:
                user.replace_input_with(given, negated)
    if found:
        module.recompile()
    return found


def _is_negated(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_neg()


def _negate_written(graph: fx.Graph, write: fx.Node) -> None:
    source: Any = write.args[1]
    with graph.inserting_before(write):
        negated = graph.call_function(aten.neg.default, (source,))
    negated.meta = {**source.meta, "val": aten.neg.default(source.meta["val"])}
    write.update_arg(1, negated)
