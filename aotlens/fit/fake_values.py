"""Let a script that reads values of fake tensors continue, so that its whole step can be observed.

Invariant: only reads that torch implements in Python are handled here; the observer answers `item` and
others.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotlens.codegen.gpu.offline.context import Replacement, replacing
from aotlens.torch_api.fake import FakeTensor

__all__ = ["reading_without_values"]

_tolist: Callable[..., Any] = torch.Tensor.tolist


@contextmanager
def reading_without_values() -> Iterator[None]:
    """Make `tolist` of a fake tensor read each element separately, within the block."""
    with replacing(Replacement(torch.Tensor, "tolist", _elements, "fake tensors have no memory to read")):
        yield


def _elements(tensor: Any) -> Any:
    if not isinstance(tensor, FakeTensor):
        return _tolist(tensor)
    if not tensor.ndim:
        return tensor.item()
    return [_elements(row) for row in tensor.unbind()]
