"""`tensor_split` at a tensor of indices, whose kernel reads them from memory.

Invariant: each index is asked for as `item()`; one that every call has is a number, others are symbols.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotlens.torch_api.fake import FakeTensor

_real = torch.tensor_split
_TENSORS: Any = torch.Tensor
INDICES = "tensor_indices_or_sections"
"""What torch calls a tensor that says where to split."""


@contextmanager
def splits_at_numbers() -> Iterator[None]:
    """Within the block, `torch.tensor_split` and the method of tensors take numbers out of such a tensor."""
    torch.tensor_split = _TENSORS.tensor_split = _split
    try:
        yield
    finally:
        torch.tensor_split = _real
        if "tensor_split" in vars(_TENSORS):  # another thread may have been done first
            del _TENSORS.tensor_split  # inherited again


def _split(*args: Any, **kwargs: Any) -> Any:
    if type(kwargs.get(INDICES)) is FakeTensor:
        numbers = kwargs.pop(INDICES).tolist()
        kwargs["indices" if isinstance(numbers, list) else "sections"] = numbers
    elif len(args) > 1 and type(args[1]) is FakeTensor:
        args = (args[0], args[1].tolist(), *args[2:])
    return _real(*args, **kwargs)
