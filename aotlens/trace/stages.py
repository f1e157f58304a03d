"""The graphs of a log as stages of the report."""

from collections.abc import Iterable, Iterator

from aotlens.model.report import Stage, StageNode
from aotlens.trace.facts import GraphSet
from aotlens.trace.graph_records import Graph, GraphNode
from aotlens.trace.lines import Locate, span_of
from aotlens.trace.tensor_text import Hints, tensor_of

__all__ = ["stages_of"]

_ADDED = "added by torch, which notes no line of yours for it"


def stages_of(graphs: GraphSet, locate: Locate) -> tuple[Stage, ...]:
    """Return a stage for each graph that was logged, in the order in which torch makes them."""
    facts, index = graphs.facts, graphs.index
    per_set = 2 if graphs.backward is not None else 1  # Inductor compiles a forward, then its backward
    post = facts.graph("inductor_post_grad_graph", index * per_set)
    post_backward = facts.graph("inductor_post_grad_graph", index * per_set + 1) if per_set == 2 else None
    named = (
        ("captured", graphs.captured, None, "dynamo_output_graph", 0),
        ("joint", graphs.joint, "captured", "aot_joint_graph", index),
        ("forward", graphs.forward, "joint", "aot_forward_graph", index),
        ("backward", graphs.backward, "joint", "aot_backward_graph", index),
        ("inference", graphs.inference, "captured", "aot_inference_graph", index),
        ("post-grad", post, "forward" if graphs.forward else "inference", _POST, index * per_set),
        ("post-grad backward", post_backward, "backward", _POST, index * per_set + 1),
    )
    present = {name for name, graph, *_ in named if graph is not None}
    return tuple(
        Stage(
            name,
            parent if parent in present else None,
            tuple(_nodes(graph, facts.hints, locate)),
            facts.text(kind, number),
        )
        for name, graph, parent, kind, number in named
        if graph is not None
    )


_POST = "inductor_post_grad_graph"


def _nodes(graph: Graph, hints: Hints, locate: Locate) -> Iterator[StageNode]:
    for argument in graph.arguments:
        slot = argument.slot or argument.name
        yield StageNode(
            argument.name, "placeholder", slot, (), tensor_of(argument.type, hints), (), reason="an input"
        )
    yield from (_node(node, hints, locate) for node in graph.nodes)
    outputs = _names(result.name for result in graph.results)
    yield StageNode("output", "output", "output", outputs, None, (), reason="the results")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.isidentifier() and name != "None")


def _node(node: GraphNode, hints: Hints, locate: Locate) -> StageNode:
    return StageNode(
        node.name,
        node.op,
        node.target,
        node.inputs,
        tensor_of(node.type, hints),
        span_of(locate, node),
        reason="" if node.line is not None else _ADDED,
    )
