"""`torch.func.linearize` in a recorded function.

Torch traces the derivative once and computes ahead what depends on the primals alone, which needs values.
Invariant: the linear map is the derivative itself, recorded at each of its calls; a gradient flows through it
to the tangents, and not to the primals.  Random numbers are drawn as often as torch draws them: by the
function, while its derivative is traced, and at each call of the map.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.capture.autograd_nodes import autograd_nodes
from aotlens.capture.tape import Tape
from aotlens.errors import UnsupportedError
from aotlens.ir.program import draws
from aotlens.torch_api.modes import current_mode
from aotlens.torch_api.operators import pytree


def as_derivative(derivative: Callable[[Any], Any], traced_on: Any) -> Callable[..., list[Any]]:
    """The linear map that torch would have traced on the tangents `traced_on`."""
    tape = current_mode()
    if isinstance(tape, Tape) and any(draws(node.op) for node in tape.nodes):
        derivative(traced_on)

    def linear_map(*tangents: Any) -> list[Any]:
        mode = current_mode()
        aliases = tuple(tangent.view_as(tangent) for tangent in tangents)
        results = pytree.tree_leaves(derivative(aliases))
        if isinstance(mode, Tape):
            _refuse_gradient(mode, aliases, results)
        return results

    return linear_map


def _refuse_gradient(tape: Tape, tangents: tuple[Any, ...], results: list[Any]) -> None:
    """A gradient that torch's traced map keeps or not, as it was traced."""
    given = {tangent.grad_fn for tangent in tangents if tangent.grad_fn is not None}
    roots = [result.grad_fn for result in results if isinstance(result, torch.Tensor)]
    if any(hasattr(node, "variable") for node in autograd_nodes(roots, given)):
        raise UnsupportedError(
            "a gradient by a tensor that a function given to `torch.func.linearize` closes over",
            tape.span,
            "pass the tensor as a primal, or detach it",
        )
