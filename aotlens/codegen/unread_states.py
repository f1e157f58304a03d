"""Draws that a graph makes with the random state before them, which nobody reads.

Invariant: Inductor would leave such a call out, and with it the draw; the draw alone stays.
"""

import operator

import torch
from torch import fx


def draw_without_state(module: fx.GraphModule) -> None:
    target = torch.ops.higher_order.run_and_save_rng_state
    unread = [
        node
        for node in module.graph.find_nodes(op="call_function", target=target)
        if not any(user.args[1] == 0 or user.target is not operator.getitem for user in node.users)
    ]
    for node in unread:
        draw, *args = node.args
        with module.graph.inserting_before(node):
            plain = module.graph.call_function(draw, tuple(args), dict(node.kwargs))
        plain.meta = {**node.meta, "val": node.meta["val"][1]}
        for user in list(node.users):  # each takes the results out of the pair
            user.replace_all_uses_with(plain)
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    if unread:
        module.recompile()
