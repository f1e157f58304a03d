"""torch functions, layers and optimizers that are replaced while a function is recorded.

Each replacement computes what eager computes, in a form that runs on fake tensors: batch norm with
`momentum=None`, dropout in recurrent layers, `tensor_split` at a tensor of indices, `torch.func.linearize`;
optimizer steps on tensors from outside the function are rejected.
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


def cumulative_batch_norm(forward: Callable[[Any, Tensor], Any], layer: Any, layer_input: Tensor) -> Any:
    """Run a batch norm; with `momentum=None` and fake running statistics, in a form that can be traced."""
    counts = layer.momentum is None and layer.training and layer.track_running_stats
    if counts and type(layer.num_batches_tracked) is FakeTensor:
        return _cumulative_forward(layer, layer_input)
    return forward(layer, layer_input)


def _cumulative_forward(layer: Any, layer_input: Tensor) -> Tensor:
    layer._check_input_dim(layer_input)
    layer.num_batches_tracked.add_(1)
    running = (layer.running_mean, layer.running_var)
    with torch.no_grad():
        own = [torch.empty_like(value).zero_() for value in running]
    result = torch.nn.functional.batch_norm(
        layer_input, own[0], own[1], layer.weight, layer.bias, training=True, momentum=1.0, eps=layer.eps
    )
    with torch.no_grad():
        share = 1.0 / layer.num_batches_tracked.double()
        for value, batch in zip(running, own, strict=True):
            value.data.copy_(share * batch.double() + (1.0 - share) * value.double())
    return result


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


INDICES = "tensor_indices_or_sections"
"""torch's keyword for a tensor of split indices."""


def symbolic_tensor_split(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `tensor_split`, with a tensor of indices converted to symbolic numbers."""
    if type(kwargs.get(INDICES)) is FakeTensor:
        numbers = kwargs.pop(INDICES).tolist()
        kwargs["indices" if isinstance(numbers, list) else "sections"] = numbers
    elif len(args) > 1 and type(args[1]) is FakeTensor:
        args = (args[0], args[1].tolist(), *args[2:])
    return original(*args, **kwargs)


def as_linear_map(derivative: Callable[[Any], Any], traced_on: Any) -> Callable[..., list[Any]]:
    """Return the linear map that torch would have traced on the tangents `traced_on`."""
    recording = current_mode()
    if isinstance(recording, Recording) and any(is_random_op(node.op) for node in recording.nodes):
        derivative(traced_on)

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

    def refuse(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        tensors = (tensor for group in optimizer.param_groups for tensor in group["params"])
        if get_ident() == thread and any(type(tensor) is not FakeTensor for tensor in tensors):
            raise unsupported(
                "outer-optimizer", recorder.current_frames().innermost, type=type(optimizer).__name__
            )

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
