"""The user's name for a value: an argument's name, or the variable to which an expression is assigned.

Invariant: of the several values that an expression computes, only its result gets the name.
"""

from collections.abc import Iterable, Iterator

import torch

from aotlens.capture.provenance.variables import Target, assigned_expressions
from aotlens.ir.program import Node, getitem
from aotlens.joint.records import Joint
from aotlens.model.report import Span
from aotlens.partition.storages import node_bytes


def user_names(joint: Joint) -> dict[int, str]:
    """Return the user's names by node identity."""
    names = {id(program_input.node): program_input.slot.name for program_input in joint.program.inputs}
    forward = [node for node in joint.program.nodes if not node.origin.backward]
    for name, nodes in _runs(forward):
        result = _result(nodes)
        if result is not None:
            names.setdefault(id(result), name)
    for node in forward:
        unpacked = _unpacked(node)
        if unpacked is not None:
            names.setdefault(id(node), unpacked)
    return names


def _unpacked(node: Node) -> str | None:
    """Return the name that a tuple assignment gives to one of several outputs."""
    span = node.origin.location.innermost
    if node.op is not getitem or span is None:
        return None
    assignment = assigned_expressions(span.file).get(span)
    if assignment is None or assignment.target is not Target.NAMES:
        return None
    values, index = node.args[0].val, node.args[1]
    is_unpacked = isinstance(values, list | tuple) and len(assignment.names) == len(values)
    return assignment.names[index].text if is_unpacked else None


Bound = tuple[Span, str, int]
"""An expression, the name to which it is assigned, and the number of user frames below it."""


def _runs(nodes: Iterable[Node]) -> Iterator[tuple[str, list[tuple[Node, int]]]]:
    """Group consecutive nodes by the run of an assigned expression that computed them, each with its depth
    below it."""
    open_runs: dict[Span, tuple[str, list[tuple[Node, int]]]] = {}
    for node in nodes:
        bound = {span: (name, depth) for span, name, depth in _assigned_names(node)}
        for span in [span for span in open_runs if span not in bound]:
            yield open_runs.pop(span)
        for span, (name, depth) in bound.items():
            open_runs.setdefault(span, (name, []))[1].append((node, depth))
    yield from open_runs.values()


def _assigned_names(node: Node) -> Iterator[Bound]:
    for depth, span in enumerate(node.origin.location.spans):
        assignment = assigned_expressions(span.file).get(span)
        if assignment is not None and assignment.target is Target.NAME:
            yield span, assignment.names[0].text, depth


def _result(nodes: list[tuple[Node, int]]) -> Node | None:
    """Return the node that holds the expression's result: of a call into user code the last value, else the
    last largest one."""
    tensors = [(node, depth) for node, depth in nodes if isinstance(node.val, torch.Tensor)]
    if not tensors:
        return None
    own = [node for node, depth in tensors if depth == 0]
    if not own:
        return tensors[-1][0]
    largest = max(map(node_bytes, own))
    return next(node for node in reversed(own) if node_bytes(node) == largest)
