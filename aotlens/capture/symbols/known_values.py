"""Values that are the same at every call: tensors that the function computes from plain numbers only.

Invariant: nothing is computed unless the function reads a number, and results are cached for the recording;
free tensors, random numbers and symbolic sizes are never known.
"""

from collections.abc import Iterator
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.operators import aten, is_builtin
from aotlens.capture.storage import has_symbols
from aotlens.ir.program import Node, getitem, is_random_op, map_leaves
from aotlens.torch_api.modes import without_modes
from aotlens.torch_api.operators import OpOverload

MOST_ELEMENTS = 1 << 16
"""A larger tensor counts as unknown: it is not computed during the recording."""


def record_literal(recording: Recording, func: Any, node: Node, value: torch.Tensor) -> None:
    """Remember the value of `torch.tensor` of plain numbers; memory shared with numpy may change."""
    if func is aten.lift_fresh.default and value.untyped_storage().resizable():
        recording.known_values[node] = value


def known_scalar(recording: Recording, func: Any, args: tuple[Any, ...]) -> Any:
    """Return the result of an operator that reads known values; None if any of them is unknown."""
    values: list[Any] = []
    for arg in args:
        values.append(
            _known_value(recording, recording.node_of(arg)) if isinstance(arg, torch.Tensor) else arg
        )
        if values[-1] is None:
            return None
    with without_modes():
        return func(*values)


def _known_value(recording: Recording, node: Node) -> torch.Tensor | None:
    """Return a node's value, computed with those that it needs; None if a call may change any of them."""
    known = recording.known_values
    for pending in _unknown_yet(node, known):
        source_values = [known[source] for source in pending.inputs()]
        unknown = any(value is None for value in source_values) or not _is_computable(pending)
        known[pending] = None if unknown else _computed(pending, known)
    result: torch.Tensor | None = known[node]
    return result


def _unknown_yet(node: Node, known: dict[Node, Any]) -> Iterator[Node]:
    """Yield the unknown nodes that the node is computed from, and itself, in topological order."""
    waiting = [(node, False)]
    while waiting:
        current, is_ready = waiting.pop()
        if current in known:
            continue
        if is_ready:
            yield current
            continue
        waiting.append((current, True))
        waiting += [(source, False) for source in current.inputs()]


def _is_computable(node: Node) -> bool:
    if node.op is getitem:
        return True
    if not isinstance(node.op, OpOverload) or not is_builtin(node.op) or is_random_op(node.op):
        return False
    return all(
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and not has_symbols(value)
        and value.numel() <= MOST_ELEMENTS
        for value in node.results
    )


def _computed(node: Node, known: dict[Node, Any]) -> Any:
    fill = lambda value: known[value] if type(value) is Node else value
    assert node.op is not None  # an operator
    with without_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        return node.op(*map_leaves(node.args, fill), **map_leaves(node.kwargs, fill))
