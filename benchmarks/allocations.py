"""Record what torch's CPU allocator allocates during an action, with torch's profiler.

Every allocation and free through torch's allocator is an event, also inside kernels (packed operands,
workspaces); what a library allocates elsewhere is not.
"""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree


def peak_bytes(action: Callable[[], object]) -> int:
    """Return the peak of bytes alive in addition to those alive before; the action's result stays alive."""
    gc.collect()
    gc.disable()  # a collection would free memory of others
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
    """Run forward and backward; results and tangents stay alive, as for a caller that keeps the loss."""
    result = call(*inputs)
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    outputs = [out for out in leaves if out.requires_grad]
    incoming = [torch.ones_like(out) for out in outputs]
    if outputs:
        torch.autograd.backward(outputs, incoming)
    return [result, incoming]


def forget_gradients(tensors: Any) -> None:
    """Clear gradients as before the first step, because existing ones would be accumulated."""
    for tensor in tensors:
        tensor.grad = None
