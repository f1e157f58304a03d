"""Batch norm that averages over all batches (`momentum=None`), recorded without a number of the data's.

torch's layer takes one over the count of batches as a Python float, which a recording cannot have.
Invariant: the running values are those that its kernel leaves, computed in double as the kernel does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from aotlens.torch_api.fake import FakeTensor
from aotlens.torch_api.operators import BatchNorm


@contextmanager
def averages_as_tensors() -> Iterator[None]:
    """Within the block, such a layer with fake running values goes another way to the same result."""
    layers: Any = BatchNorm
    before = layers.forward

    def forward(layer: Any, given: Tensor) -> Any:
        counts = layer.momentum is None and layer.training and layer.track_running_stats
        if counts and type(layer.num_batches_tracked) is FakeTensor:
            return _averaged(layer, given)
        return before(layer, given)

    layers.forward = forward
    try:
        yield
    finally:
        layers.forward = before


def _averaged(layer: Any, given: Tensor) -> Tensor:
    layer._check_input_dim(given)
    layer.num_batches_tracked.add_(1)
    running = (layer.running_mean, layer.running_var)
    with torch.no_grad():
        own = [torch.empty_like(value).zero_() for value in running]
    result = torch.nn.functional.batch_norm(
        given, own[0], own[1], layer.weight, layer.bias, training=True, momentum=1.0, eps=layer.eps
    )
    with torch.no_grad():
        share = 1.0 / layer.num_batches_tracked.double()
        for value, batch in zip(running, own, strict=True):
            value.data.copy_(share * batch.double() + (1.0 - share) * value.double())
    return result
