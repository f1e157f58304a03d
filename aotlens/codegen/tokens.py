"""Effects in a graph for Inductor: a token goes through them, so that no pass of its own changes their order.

Invariant: the graph's inputs and outputs stay as they are; the token is made and dropped inside.
"""

import operator
from typing import Any

from torch import fx

from aotlens.torch_api.hop import has_ordered_effect, make_token, sink_tokens, with_effects


def thread_token(module: fx.GraphModule) -> None:
    """Put each operator with an effect behind the one before it; a graph without any stays untouched."""
    graph = module.graph
    effects = [node for node in graph.nodes if _is_effect(node)]
    if not effects:
        return
    with graph.inserting_before(effects[0]):
        token = graph.call_function(make_token)
    token.meta["val"] = empty = make_token()
    for node in effects:
        token = _behind(graph, node, token, empty)
    with graph.inserting_before(graph.output_node()):
        graph.call_function(sink_tokens, ([token],))
    module.recompile()


def _is_effect(node: fx.Node) -> bool:
    return (
        node.op == "call_function" and hasattr(node.target, "namespace") and has_ordered_effect(node.target)
    )


def _behind(graph: fx.Graph, node: Any, token: fx.Node, empty: Any) -> fx.Node:
    """Run the node behind the token; gives the token that comes after it."""
    val = node.meta.get("val")
    results = tuple(val) if isinstance(val, (list, tuple)) else (val,)
    with graph.inserting_before(node):
        call = graph.call_function(with_effects, (token, node.target, *node.args), dict(node.kwargs))
        after = graph.call_function(operator.getitem, (call, 0))
        call.meta = {**node.meta, "val": (empty, *results)}
        after.meta["val"] = empty
        if isinstance(val, (list, tuple)):
            for reader in list(node.users):
                reader.args = (call, reader.args[1] + 1)
        elif node.users:
            result = graph.call_function(operator.getitem, (call, 1))
            result.meta = dict(node.meta)
            node.replace_all_uses_with(result)
    graph.erase_node(node)
    return after
