"""Random masks as a GPU draws them: a comparison of uniform numbers, which is fused with what reads it.

On a CPU torch draws a dropout's mask by an operator of its own.
"""

from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import aten

DRAW = aten.bernoulli.p
ASSUMED = "masks of dropout are drawn as uniform numbers below the probability, inside the kernels"


def to_uniform_draws(module: fx.GraphModule) -> list[str]:
    """Exchange the draws of masks; returns what was assumed."""
    found = [node for node in module.graph.find_nodes(op="call_function", target=DRAW) if not node.kwargs]
    for node in found:
        _exchange(module.graph, node)
    return [ASSUMED] if found else []


def _exchange(graph: fx.Graph, node: Any) -> None:
    like, probability = node.args
    shape, dtype, device = like.meta["val"].shape, node.meta["val"].dtype, like.meta["val"].device

    def call(op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = graph.call_function(op, args, kwargs)
        made.meta = {name: value for name, value in node.meta.items() if name != "val"}
        return made

    with graph.inserting_before(node):
        sizes = [
            size if isinstance(size, int) else call(aten.sym_size.int, like, at)
            for at, size in enumerate(shape)
        ]
        numbers = call(aten.rand.default, sizes, dtype=torch.float32, device=device)
        mask = call(
            torch.ops.prims.convert_element_type.default, call(aten.lt.Scalar, numbers, probability), dtype
        )
    node.replace_all_uses_with(mask)
    graph.erase_node(node)
