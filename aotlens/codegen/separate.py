"""Results that Inductor computes inside the memory of another value, or gives as one tensor.

Inductor computes the operands of a `cat` where the `cat` lies, and an input's new value in that input; it
removes a `clone` that would keep them apart, and for a view with the sizes of what it shows it gives that
tensor itself.  Invariant: a result beside a `cat`, or beside an input that the graph writes, has memory of
its own, and two results are two tensors.
"""

from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import aten
from aotlens.partition.storages import is_view_operator


def results_of_writes(module: fx.GraphModule) -> list[tuple[int, int]]:
    """Results that show the value which an input gets in the graph, each with that input's position."""
    inputs = {node: at for at, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    writes = module.graph.find_nodes(op="call_function", target=aten.copy_.default)
    if not writes:
        return []
    values = [(root_of(write.args[1]), inputs[write.args[0]]) for write in writes if write.args[0] in inputs]
    results: Any = module.graph.output_node().args[0]
    return [
        (at, given)
        for at, result in enumerate(results)
        for value, given in values
        if isinstance(result, fx.Node) and root_of(result) is value
    ]


def views_of_results(module: fx.GraphModule, visible: list[int]) -> list[int]:
    """The results that show another result's memory, where the caller sees them; ask before Inductor runs."""
    results: Any = module.graph.output_node().args[0]
    shown = [_shown_by(result) if isinstance(result, fx.Node) else None for result in results]
    return [
        at
        for at in visible
        if shown[at] is not results[at]
        and any(
            shown[at] is other and results[at] is not results[index]
            for index, other in enumerate(shown)
            if index != at
        )
    ]


def copies_of_one(module: fx.GraphModule, visible: list[int]) -> list[int]:
    """The results that are copies of what another result is or copies; Inductor takes them for one value."""
    results: Any = module.graph.output_node().args[0]
    shown = [_shown_by(result) if isinstance(result, fx.Node) else None for result in results]
    roots = [root_of(result) for result in results]
    return [
        at
        for at in visible
        if shown.count(shown[at]) == 1
        and _is_tensor(results[at])
        and any(roots[at] is roots[other] for other in range(len(results)) if other != at)
    ]


def _is_tensor(result: Any) -> bool:
    return isinstance(result, fx.Node) and isinstance(result.meta.get("val"), torch.Tensor)


def _shown_by(node: fx.Node) -> fx.Node:
    while is_view_operator(node.target):
        node = node.args[0]  # type: ignore[assignment]
    return node


def doubtful_results(module: fx.GraphModule, visible: list[int]) -> list[int]:
    """The results that go into a `cat`, where the caller sees either of them; Inductor changes the module."""
    results: Any = module.graph.output_node().args[0]
    seen = {root_of(results[at]) for at in visible}
    found = []
    for at, result in enumerate(results):
        if isinstance(result, fx.Node) and isinstance(result.meta.get("val"), torch.Tensor):
            cats = _cats_of(result)
            if cats and (at in visible or cats & seen):
                found.append(at)
    return found


def _cats_of(node: fx.Node) -> set[fx.Node]:
    """The `cat`s that a value is an operand of, itself, through views or as a copy."""
    found: set[fx.Node] = set()
    waiting, known = [root_of(node)], {root_of(node)}
    while waiting:
        for user in waiting.pop().users:
            if user.target is aten.cat.default:
                found.add(user)
            elif _is_same(user) and user not in known:
                known.add(user)
                waiting.append(user)
    return found


def root_of(node: Any) -> Any:
    """What a value is seen through views, and may be after Inductor has removed copies."""
    while _is_same(node):
        node = node.args[0]
    return node


def _is_same(node: Any) -> bool:
    """Whether the value lies where its source does, or may after Inductor has removed a copy."""
    return isinstance(node, fx.Node) and (node.target is aten.clone.default or is_view_operator(node.target))
