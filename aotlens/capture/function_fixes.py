"""torch functions, layers and optimizers that are replaced while a function is recorded.

Each replacement computes what eager computes, in a form that runs on fake tensors: dropout in recurrent
layers, `torch.func.linearize`; optimizer steps on tensors from outside the function are rejected.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from aotlens.capture.autograd.graph_walk import autograd_nodes
from aotlens.capture.graph import Recording
from aotlens.capture.recorder import Recorder
from aotlens.ir.program import is_random_op
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.modes import current_mode
from aotlens.torch_api.operators import pytree
from aotlens.unsupported import unsupported


def rnn_layers_with_dropout(
    layers: Callable[..., Any], sequence: Tensor, hidden: Any, weights: Any, *options: Any
) -> tuple[Tensor, list[Any]]:
    """Run torch's `_rnn_helper` layer by layer, with dropout between the layers as in eager."""
    has_biases, count, rate, train, bidirectional, batch_first, layer = options
    if not (rate and train and count > 1):
        result: tuple[Tensor, list[Any]] = layers(sequence, hidden, weights, *options)
        return result
    directions, last = 2 if bidirectional else 1, []
    sequence = sequence.transpose(0, 1) if batch_first else sequence
    for index in range(count):
        own = slice(index * directions, (index + 1) * directions)
        sequence = sequence if index == 0 else torch.dropout(sequence, rate, True)
        layer_options = (has_biases, 1, 0.0, train, bidirectional, False, layer)
        sequence, states = layers(sequence, hidden[own], weights[own], *layer_options)
        last += states
    return (sequence.transpose(0, 1) if batch_first else sequence), last


def as_linear_map(derivative: Callable[[Any], Any], traced_on: Any) -> Callable[..., list[Any]]:
    """Return the linear map that torch would have traced on the tangents `traced_on`."""
    recording = current_mode()
    if isinstance(recording, Recording) and any(is_random_op(node.op) for node in recording.nodes):
        derivative(traced_on)  # torch's trace runs it too, and with it its random operators

    def linear_map(*tangents: Any) -> list[Any]:
        mode = current_mode()
        aliases = tuple(tangent.view_as(tangent) for tangent in tangents)
        results = pytree.tree_leaves(derivative(aliases))
        if isinstance(mode, Recording):
            _reject_gradient(mode, aliases, results)
        return results

    return linear_map


def _reject_gradient(recording: Recording, tangents: tuple[Any, ...], results: list[Any]) -> None:
    """Reject a gradient that torch's traced map may or may not contain, depending on its trace."""
    tangent_nodes = {tangent.grad_fn for tangent in tangents if tangent.grad_fn is not None}
    roots = [result.grad_fn for result in results if isinstance(result, torch.Tensor)]
    if any(hasattr(node, "variable") for node in autograd_nodes(roots, tangent_nodes)):
        raise unsupported("linearize-free-variable", recording.span)


@contextmanager
def without_outer_optimizer_steps(recorder: Recorder) -> Iterator[None]:
    """In the block, reject a step of an optimizer whose tensors are not part of the recording."""
    thread = get_ident()

    def reject(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        tensors = (tensor for group in optimizer.param_groups for tensor in group["params"])
        if get_ident() == thread and any(type(tensor) is not FakeTensor for tensor in tensors):
            raise unsupported(
                "outer-optimizer", recorder.current_frames().innermost, type=type(optimizer).__name__
            )

    handle = register_optimizer_step_pre_hook(reject)
    try:
        yield
    finally:
        handle.remove()
