"""`torch.func.linearize` in a recorded function.

Torch traces the derivative once and computes ahead what depends on the primals alone, which needs values.
Invariant: the linear map is the derivative itself, recorded at each of its calls; a gradient flows through it
to the tangents, and not to the primals.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.capture.autograd_nodes import autograd_nodes
from aotlens.capture.tape import Tape
from aotlens.errors import UnsupportedError
from aotlens.ir.program import draws
from aotlens.torch_api import current_mode, pytree


def as_derivative(derivative: Callable[[Any], Any]) -> Callable[..., list[Any]]:
    """The linear map that torch would have traced."""

    def linear_map(*tangents: Any) -> list[Any]:
        mode = current_mode()
        before = len(mode.nodes) if isinstance(mode, Tape) else 0
        aliases = tuple(tangent.view_as(tangent) for tangent in tangents)
        results = pytree.tree_leaves(derivative(aliases))
        if isinstance(mode, Tape):
            _refuse_others(mode, mode.nodes[before:], aliases, results)
        return results

    return linear_map


def _refuse_others(tape: Tape, nodes: list[Any], tangents: tuple[Any, ...], results: list[Any]) -> None:
    """What torch's traced map would do otherwise: draw again or not, keep a gradient or not."""
    if any(draws(node.op) for node in nodes):
        raise UnsupportedError(
            "random numbers in a function given to `torch.func.linearize`",
            tape.span,
            "draw them outside of the function",
        )
    given = {tangent.grad_fn for tangent in tangents if tangent.grad_fn is not None}
    roots = [result.grad_fn for result in results if isinstance(result, torch.Tensor)]
    if any(hasattr(node, "variable") for node in autograd_nodes(roots, given)):
        raise UnsupportedError(
            "a gradient by a tensor that a function given to `torch.func.linearize` closes over",
            tape.span,
            "pass the tensor as a primal, or detach it",
        )
