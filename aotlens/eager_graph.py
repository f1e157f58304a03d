"""A graph of Dynamo's to be run in eager with eager's numbers.

Dynamo writes `torch.utils.checkpoint` as an operator on a graph of its own.  Run in eager, that operator
recomputes with other random numbers than the forward had: it leaves the random state to a compiler.  Here the
checkpoint is made as the user made it.

Invariant: the graph that was captured is not changed; a graph without checkpoints is returned as it is.
"""

import inspect
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import checkpoint

__all__ = ["eager_graph"]

CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
CONTEXTS = "_checkpoint_context_fn"
"""Where Dynamo notes the user's `context_fn` in the metadata of the checkpointed graph."""
OPTIONS = frozenset(
    name
    for name, parameter in inspect.signature(checkpoint).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
) | {"use_reentrant", "preserve_rng_state"}
"""Keywords of a checkpoint that are not the function's own."""


def eager_graph(graph: fx.GraphModule) -> fx.GraphModule:
    """The graph, with every checkpoint in it (and in the graphs that it calls) as in eager."""
    bodies = {
        name: body
        for name, child in graph.named_children()
        if isinstance(child, fx.GraphModule) and (body := eager_graph(child)) is not child
    }
    has_checkpoint = any(node.target is CHECKPOINT for node in graph.graph.nodes)
    if not has_checkpoint and not bodies:
        return graph
    nodes = fx.Graph()
    nodes.output(nodes.graph_copy(graph.graph, {}))
    for node in nodes.nodes:
        if node.target is CHECKPOINT:
            node.target = checkpointed
    copied = fx.GraphModule(graph, nodes, graph.__class__.__name__)
    copied.meta.update(graph.meta)
    for name, body in bodies.items():
        setattr(copied, name, body)
    return copied


def checkpointed(body: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """Make the user's call of `checkpoint`; `body` is the graph of the checkpointed function."""
    options = {name: value for name, value in kwargs.items() if name in OPTIONS}
    own = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    if CONTEXTS in body.meta:
        options["context_fn"] = body.meta[CONTEXTS]
    # A reentrant one has the same numbers, but no gradients where no input of the function needs one.
    return checkpoint(body.forward, *args, **{**options, "use_reentrant": False}, **own)
