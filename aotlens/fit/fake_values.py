"""Let a script that reads values of fake tensors go on, so that its whole step can be observed.

Invariant: only reads that torch has in Python are handled here; the observer answers `item` and the like.
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
    """Within the block, `tolist` of a fake tensor reads each element by itself."""
    with replacing(Replacement(torch.Tensor, "tolist", _elements, "fake tensors have no memory to read")):
        yield


def _elements(tensor: Any) -> Any:
    if not isinstance(tensor, FakeTensor):
        return _tolist(tensor)
    if not tensor.ndim:
        return tensor.item()
    return [_elements(row) for row in tensor.unbind()]
