"""What torch's CPU allocator gave out during an action, seen by torch's profiler.

Every allocation and release through torch's allocator is an event, those inside of kernels too (packed
operands, workspaces); what a library allocates past it is not.
"""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree


def peak_bytes(action: Callable[[], object]) -> int:
    """The most bytes alive at once, beyond those alive before; what the action gives stays alive."""
    gc.collect()
    gc.disable()  # a collection would free what is not the action's
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
            result = action()
    finally:
        gc.enable()
    results: Any = profiler.profiler.kineto_results
    live = peak = 0
    for event in results.events():  # by time
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    del result
    return peak


def training_step(call: Callable[..., Any], inputs: tuple[Any, ...]) -> list[Any]:
    """Forward and backward; results and incoming gradients stay alive, as when a caller keeps the loss."""
    result = call(*inputs)
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    outputs = [out for out in leaves if out.requires_grad]
    incoming = [torch.ones_like(out) for out in outputs]
    if outputs:
        torch.autograd.backward(outputs, incoming)
    return [result, incoming]


def forget_gradients(tensors: Any) -> None:
    """As before the first step: a gradient that is there already would be added to."""
    for tensor in tensors:
        tensor.grad = None
