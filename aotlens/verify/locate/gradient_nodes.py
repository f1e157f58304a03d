"""Find the first node of the backward whose gradient differs from autograd's.

The functional program runs once more under autograd, which computes the gradient of each of its values.  If
no node of the backward computes a value's gradient, the operator that reads this value is wrong.  Values are
matched by their numbers, so the backward may hold them transposed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from aotlens.ir.program import Node, Program, nodes_in
from aotlens.ir.slots import MutatedInput
from aotlens.rng_state import same_random_state
from aotlens.verify.locate.nodes import Player, WrongNode
from aotlens.verify.tensors.values import close


def first_wrong_gradient(
    functional: Program, arguments: list[Any], tangents: Mapping[str, Any], joint: Program, values: Any
) -> WrongNode | None:
    """Return the first wrong gradient; `values` are those of the joint program's nodes on the same inputs."""
    truth = _gradients(functional, arguments, tangents)
    if truth is None:
        return None
    backward = [node for node in joint.nodes if node.origin.backward]
    known = [values[node.name] for node in backward if isinstance(values.get(node.name), Tensor)]
    known += [tangent for tangent in tangents.values() if isinstance(tangent, Tensor)]
    for node in reversed(functional.nodes):
        if node.name in truth and not _among(truth[node.name], known):
            continue
        for source in nodes_in(node.args):
            expected = truth.get(source.name)
            if node.name in truth and expected is not None and not _among(expected, known):
                return _named(node, backward, values, expected)
    return None


def _named(operator: Node, backward: list[Node], values: Mapping[str, Any], expected: Tensor) -> WrongNode:
    """Return the node of this operator's backward whose value has the gradient's shape, else the last one."""
    own = [node for node in backward if _is_gradient_of(node, operator)]
    tensors = [node for node in own if isinstance(values.get(node.name), Tensor)]
    fitting = [node for node in tensors if values[node.name].shape == expected.shape]
    node = next(iter(reversed(fitting or tensors)), operator)
    return WrongNode(node, values.get(node.name), expected, f"the gradient of `{operator.name}`")


def _is_gradient_of(node: Node, operator: Node) -> bool:
    differentiated = node.origin.differentiates
    return differentiated is operator.origin or (
        differentiated is not None and differentiated.location == operator.origin.location
    )


def _gradients(
    functional: Program, arguments: list[Any], tangents: Mapping[str, Any]
) -> dict[str, Tensor] | None:
    """Return the gradient of each value of the functional program; None if autograd cannot run it."""
    player = Player(functional, keep_graph=True)
    results = frozenset(out.slot.name for out in functional.outputs if not isinstance(out.slot, MutatedInput))
    leaves = [_leaf(value) for value in arguments]
    try:
        with same_random_state(), torch.enable_grad():
            outputs = player.run(*leaves)
        pairs = [
            (value, tangents[out.slot.name])
            for out, value in zip(functional.outputs, outputs, strict=True)
            if out.slot.name in tangents and isinstance(value, Tensor) and value.requires_grad
            # a mutated argument `out` may have the name of a result: the tangent is the result's
            if not isinstance(out.slot, MutatedInput) or out.slot.name not in results
        ]
        differentiable = {
            name: value
            for name, value in player.values.items()
            if isinstance(value, Tensor) and value.requires_grad
        }
        gradients = torch.autograd.grad(
            [value for value, _ in pairs],
            list(differentiable.values()),
            [tangent for _, tangent in pairs],
            allow_unused=True,
        )
    except (RuntimeError, ValueError, NotImplementedError):
        return None
    return {name: value for name, value in zip(differentiable, gradients, strict=True) if value is not None}


def _leaf(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    is_float = value.is_floating_point() or value.is_complex()
    return value.detach().clone().requires_grad_(is_float)


def _among(gradient: Tensor, known: list[Tensor]) -> bool:
    return any(_same_numbers(gradient, value) for value in known)


def _same_numbers(left: Tensor, right: Tensor) -> bool:
    if left.numel() != right.numel() or left.dtype != right.dtype:
        return False
    return any(close(*pair) for pair in _orders(left, right))


def _orders(left: Tensor, right: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    yield left.detach().flatten(), right.detach().flatten()
    if not left.is_complex():
        yield left.detach().flatten().sort().values, right.detach().flatten().sort().values
