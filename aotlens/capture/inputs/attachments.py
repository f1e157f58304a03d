"""What the function attaches to its inputs: hooks, gradients and attributes, all of which are unsupported.

Invariant: a function that would leave any of them on the caller's tensors is rejected by name.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from aotlens.capture.recorder import Recorder
from aotlens.capture.records import OpenInput
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.unsupported import unsupported


def reject_attachments(recorder: Recorder, inputs: Sequence[OpenInput]) -> None:
    """Reject what the function has attached to an input; no fake gradient remains on a tensor.

    Raises:
        UnsupportedError: an input has a new hook, gradient or attribute.
    """
    with_gradient = [item for item in inputs if _pop_gradients(item)]
    if with_gradient:
        raise unsupported("grad-of-input", recorder.span, input=with_gradient[0].slot.name)
    for captured_input in inputs:
        argument = captured_input.argument
        if not isinstance(argument, torch.Tensor) or argument.is_inference():
            continue
        _reject_attributes(recorder, captured_input)
        if not captured_input.is_leaf and argument.retains_grad:
            raise unsupported("retain-grad", recorder.span)
        if argument._post_accumulate_grad_hooks:
            raise unsupported("hook-on-input", recorder.span, input=captured_input.slot.name)


def reject_retain_grad(recorder: Recorder, inputs: Sequence[OpenInput], outputs: Iterable[Any]) -> None:
    """Reject `retain_grad` on an output: its `.grad` would lack what reaches it within the function.

    Raises:
        UnsupportedError: an output that is not an input retains its gradient.
    """
    for tensor in outputs:
        if type(tensor) is not FakeTensor or not tensor.retains_grad:  # False for a leaf
            continue
        if not any(captured_input.argument is tensor for captured_input in inputs):
            raise unsupported("retain-grad", recorder.node_of(tensor).origin.location.innermost)


def _pop_gradients(captured_input: OpenInput) -> bool:
    """Remove the gradients that a backward inside the function put on an input; return True if it did.

    Autograd puts them on the argument, on the leaf that it was computed from, or on the caller's own tensor.
    """
    candidates = [captured_input.leaf, captured_input.free_tensor]
    if captured_input.is_leaf or not captured_input.requires_grad:  # asking a view of a detached tensor fails
        candidates.append(captured_input.argument)
    with_gradient = [
        tensor
        for tensor in candidates
        if isinstance(tensor, torch.Tensor) and tensor.is_leaf and type(tensor.grad) is FakeTensor
    ]
    for tensor in with_gradient:
        tensor.grad = None
    return bool(with_gradient)


def _reject_attributes(recorder: Recorder, captured_input: OpenInput) -> None:
    """Reject an attribute that the function sets on a tensor: the caller's tensor would not get it."""
    attributes, initial = vars(captured_input.argument), vars(captured_input.fake)
    if type(captured_input.argument) is not FakeTensor or len(attributes) <= len(initial) + 1:  # one is ours
        return
    names = [name for name in attributes.keys() - initial.keys() if not name.startswith("_")]
    if names:
        raise unsupported(
            "attribute-of-input", recorder.span, attribute=min(names), input=captured_input.slot.name
        )
