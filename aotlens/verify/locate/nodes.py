"""Run programs of neighbouring stages node by node and find the first node whose value is wrong.

Invariant: a node is compared only with its counterpart: the same operator of the same call, or for a
decomposed call its last node with that call.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from aotlens.build.programs import StageProgram
from aotlens.capture.subclasses import inner_tensors
from aotlens.ir.graph_module import to_graph_module
from aotlens.ir.program import Node, Program
from aotlens.rng_state import same_random_state
from aotlens.torch_api.modes import below_views
from aotlens.verify.tensors.values import close

Values = dict[str, Any]
"""By node name, each value as it was right after the node ran."""


@dataclass(frozen=True, slots=True)
class WrongNode:
    """A node with its actual and its expected value."""

    node: Node
    actual: Any
    expected: Any
    ancestor: str = ""
    """The counterpart in the stage before, if it has another name."""


class Player(fx.Interpreter):
    """Runs a program node by node and stores a copy of every value."""

    def __init__(self, program: Program, keep_graph: bool = False) -> None:
        super().__init__(to_graph_module(program, training=True))
        self._keep_graph = keep_graph
        self.values: Values = {}
        placeholders = self.module.graph.find_nodes(op="placeholder")  # type: ignore[union-attr, operator]
        self._names = {
            placeholder: program_input.node.name
            for placeholder, program_input in zip(placeholders, program.inputs, strict=True)
        }

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        name = self._names.get(n) or n.meta.get("aotlens_node") or n.name
        keep = isinstance(value, Tensor) and not self._keep_graph
        self.values[name] = value.detach().clone() if keep else value
        return value


def play(program: Program, arguments: list[Any]) -> Values:
    """Return the value of each node, below autograd."""
    player = Player(program)
    with same_random_state(), torch.no_grad(), below_views():
        player.run(*arguments)
    return player.values


def first_wrong_node(
    stage: StageProgram, values: Mapping[str, Any], parent: StageProgram, expected: Mapping[str, Any]
) -> WrongNode | None:
    """Return the first node whose value differs from its counterpart's."""
    for node, ancestor in _pairs(stage, parent):
        wrong = first_difference(values.get(node.name), expected.get(ancestor))
        if wrong is not None:
            return WrongNode(node, *wrong, ancestor if ancestor != node.name else "")
    return None


def differs(actual: Any, expected: Any) -> bool:
    """Return True if both are comparable tensors and are not close."""
    return first_difference(actual, expected) is not None


def first_difference(actual: Any, expected: Any) -> tuple[Tensor, Tensor] | None:
    """Return two comparable tensors that are not close; for wrappers the first such pair of inner tensors."""
    if not isinstance(actual, Tensor) or not isinstance(expected, Tensor):
        return None
    inner: dict[tuple[str, ...], Tensor] = dict(inner_tensors(expected))
    for path, tensor in inner_tensors(actual):
        other = inner.get(path, tensor)
        if tensor.shape == other.shape and tensor.dtype == other.dtype and not close(tensor, other):
            return tensor, other
    return None


def _pairs(stage: StageProgram, parent: StageProgram) -> Iterator[tuple[Node, str]]:
    """Yield each node with the node of the parent stage that computes the same value."""
    targets = {node.name: node.target for node in parent.program.nodes}
    last: dict[tuple[str, ...], Node] = {}
    for node in stage.program.nodes:
        last[stage.ancestors(node)] = node
    for node in stage.program.nodes:
        ancestors = stage.ancestors(node)
        if len(ancestors) != 1 or (node.origin.differentiates is not None and ancestors[0] != node.name):
            continue
        same = targets.get(ancestors[0]) == node.target
        if same or last[ancestors] is node:
            yield node, ancestors[0]
