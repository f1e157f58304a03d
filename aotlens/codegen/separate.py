"""Results that Inductor computes inside the memory of another.

Inductor computes the operands of a `cat` where the `cat` lies, and removes a `clone` that would keep them
apart.  Invariant: what the caller receives beside a `cat` has memory of its own.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from aotlens.capture.operators import aten
from aotlens.partition.storages import is_view_operator

Code = Callable[[list[Any]], Any]


def with_separate_results(code: Code, doubtful: list[int]) -> Code:
    """The graph's code, with a copy of each of these results that lies in the memory of another."""
    if not doubtful:
        return code

    def separated(arguments: list[Any]) -> list[Any]:
        results = list(code(arguments))
        for at in doubtful:
            storage = results[at].untyped_storage()._cdata
            if any(
                other is not results[at] and other.untyped_storage()._cdata == storage
                for other in results
                if isinstance(other, torch.Tensor)
            ):
                results[at] = results[at].clone()
        return results

    return separated


def doubtful_results(module: fx.GraphModule, visible: list[int]) -> list[int]:
    """The results that go into a `cat`, where the caller sees either of them; Inductor changes the module."""
    results: Any = module.graph.output_node().args[0]
    seen = {_root(results[at]) for at in visible}
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
    waiting, known = [_root(node)], {_root(node)}
    while waiting:
        for user in waiting.pop().users:
            if user.target is aten.cat.default:
                found.add(user)
            elif _is_same(user) and user not in known:
                known.add(user)
                waiting.append(user)
    return found


def _root(node: fx.Node) -> fx.Node:
    while _is_same(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _is_same(node: fx.Node) -> bool:
    """Whether the value lies where its source does, or may after Inductor has removed a copy."""
    return node.target is aten.clone.default or is_view_operator(node.target)
