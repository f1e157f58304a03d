"""The graphs of a log as stages of the report, and torch's runtime wrapper as text."""

import re
from collections.abc import Iterable, Iterator

from aotlens.model.report import Stage, StageNode, Wrapper, WrapperStep
from aotlens.trace.facts import CompilationFacts, GraphSet
from aotlens.trace.graphs.records import Graph, GraphNode
from aotlens.trace.graphs.tensor_text import Hints, tensor_of
from aotlens.trace.source.lines import Locate, span_of

__all__ = ["POST_GRAD", "stages_of", "wrapper_of"]

_ADDED = "added by torch, which notes no line of yours for it"


def stages_of(graphs: GraphSet, locate: Locate) -> tuple[Stage, ...]:
    """Return a stage for each logged graph, in the order in which torch makes them."""
    facts, index = graphs.facts, graphs.index
    per_set = 2 if graphs.backward is not None else 1  # Inductor compiles a forward, then its backward
    post_kind = next((kind for kind in POST_GRAD if facts.every(kind)), POST_GRAD[0])
    post = facts.graph(post_kind, index * per_set)
    post_backward = facts.graph(post_kind, index * per_set + 1) if per_set == 2 else None
    named = (
        ("captured", graphs.captured, None, "dynamo_output_graph", 0),
        ("joint", graphs.joint, "captured", "aot_joint_graph", index),
        ("forward", graphs.forward, "joint", "aot_forward_graph", index),
        ("backward", graphs.backward, "joint", "aot_backward_graph", index),
        ("inference", graphs.inference, "captured", "aot_inference_graph", index),
        ("post-grad", post, "forward" if graphs.forward else "inference", post_kind, index * per_set),
        ("post-grad backward", post_backward, "backward", post_kind, index * per_set + 1),
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


POST_GRAD = ("inductor_post_grad_graph", "after_post_grad_graph")
"""The kind of the graph after Inductor's passes; torch of 2025 wrote the second."""


def _nodes(graph: Graph, hints: Hints, locate: Locate) -> Iterator[StageNode]:
    for argument in graph.arguments:
        slot = argument.slot or argument.name
        yield StageNode(
            argument.name, "placeholder", slot, (), tensor_of(argument.type, hints), (), reason="an input"
        )
    yield from (_node(node, hints, locate) for node in graph.nodes)
    outputs = _names(result.name for result in graph.results)
    yield StageNode("output", "output", "output", outputs, None, (), reason="the outputs")


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


PARTS = (
    ("runtime_wrapper_orchestration", "runs around the compiled graph on each call"),
    ("output_alias_wrapper", "makes outputs views of the caller's tensors again"),
    ("compiled_fn_wrapper", "marks outputs that carry no gradient, and hides views whose base stays inside"),
    ("compiled_function_forward", "runs the compiled forward, and saves values for the backward"),
    ("compiled_function_backward", "runs the compiled backward"),
    ("backward_prologue", "prepares tangents for the compiled backward"),
    ("backward_epilogue", "hands gradients out in the order of the inputs"),
)
ALL_PARTS = "aot_autograd_runtime_wrappers"
"""The record that holds all parts since torch 2.15, each below a comment with its name."""
_COPY = re.compile(r"\.copy_\(|_apply_mutations|_copy_back")


def _parts_of(text: str) -> dict[str, str]:
    """Return the parts of a record with all of them."""
    pieces = re.split(rf"^# ({'|'.join(kind for kind, _ in PARTS)})$", text, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def wrapper_of(facts: CompilationFacts, index: int) -> Wrapper | None:
    """Return the logged parts in sequence; None for releases of torch that log none."""
    lines: list[str] = []
    steps: list[WrapperStep] = []
    together = _parts_of(facts.text(ALL_PARTS, index))
    for kind, reason in PARTS:
        text = (facts.text(kind, index) or together.get(kind, "")).strip("\n")
        if not text:
            continue
        lines.append(f"# {kind}")
        start = len(lines) + 1
        lines += [*text.split("\n"), ""]
        steps.append(WrapperStep(kind, True, reason, (start, len(lines) - 1)))
        if kind == "runtime_wrapper_orchestration" and _COPY.search(text):  # a step of its own in our wrapper
            steps.append(WrapperStep("copy back", True, "writes new values into the caller's tensors", None))
    return Wrapper("\n".join(lines), tuple(steps)) if steps else None
