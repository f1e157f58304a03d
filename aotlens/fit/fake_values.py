"""Let a script that reads values of fake tensors continue, so that its whole step can be observed.

Invariant: a value that a script reads is the script's own where it is computed from known integers: those of
small tensors that it creates, draws with `torch.randint`, or loads.  All others are placeholders, which the
observer returns and reports.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from aotlens.torch_api.fake.tensors import (
    FakeTensor,
    FakeTensorMode,
    current_fake_mode,
    fake_constant,
    keep_constants,
    known_fake,
    without_fake_mode,
)
from aotlens.torch_api.modes import TorchDispatchMode, without_modes
from aotlens.torch_api.operators import OpOverload, pytree, tensor_leaves
from aotlens.torch_api.replacements import Replacement, replacing

__all__ = ["KnownIntegers", "reading_without_values"]

MOST_ELEMENTS = 4096
"""Larger tensors of integers have no values: they are data, not sizes or positions."""
UNINITIALIZED = ("empty", "new_empty")

NO_MEMORY = "fake tensors have no memory to read"

_tolist: Callable[..., Any] = torch.Tensor.tolist
_numpy: Callable[..., Any] = torch.Tensor.numpy
_format: Callable[..., str] = torch.Tensor.__format__


@contextmanager
def reading_without_values() -> Iterator[None]:
    """Keep the values of small integer tensors within the block; other reads return placeholders."""
    mode = current_fake_mode()
    readers = {"tolist": _elements, "numpy": _array, "__format__": _formatted}
    with ExitStack() as stack:
        for name, reader in readers.items():
            stack.enter_context(replacing(Replacement(torch.Tensor, name, reader, NO_MEMORY)))
        if mode is not None:
            keep_constants(mode, _is_small_integer)
            stack.enter_context(KnownIntegers(mode))
        yield


class KnownIntegers(TorchDispatchMode):
    """Keeps the values of small integer tensors that no other tensor determines, and of real ones.

    The fake mode computes what follows from them.
    """

    supports_higher_order_operators = True

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        self._fakes: Any = WeakTensorKeyDictionary()
        """The fake tensor of each small real tensor that an operator has read."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, so that Dynamo compiles inside the mode as if it did not exist."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._with_value, (args, kwargs or {}))
        result = func(*args, **kwargs)
        if not _is_unknown_integer(result) or not _is_constructor(func, args, kwargs):
            return result
        return fake_constant(self._mode, lambda: func(*args, **kwargs))

    def _with_value(self, tensor: torch.Tensor) -> Any:
        if type(tensor) is not torch.Tensor or not _is_small_integer(tensor):
            return tensor
        if tensor not in self._fakes:
            self._fakes[tensor] = known_fake(self._mode, tensor)
        return self._fakes[tensor]


def _is_small_integer(tensor: torch.Tensor) -> bool:
    is_integer = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
    is_dense = tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    return is_integer and is_dense and tensor.numel() <= MOST_ELEMENTS


def _is_unknown_integer(result: object) -> bool:
    return isinstance(result, FakeTensor) and result.constant is None and _is_small_integer(result)


def _is_constructor(func: Any, args: Any, kwargs: Any) -> bool:
    """Return True for an operator that fills a new tensor from numbers alone, also random ones."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return False
    has_tensors = bool(tensor_leaves((args, kwargs)))
    return not has_tensors and not func._schema.name.partition("::")[2].startswith(UNINITIALIZED)


def _elements(tensor: Any) -> Any:
    if not isinstance(tensor, FakeTensor):
        return _tolist(tensor)
    if tensor.constant is not None:
        with without_fake_mode():
            return _tolist(tensor.constant)
    if not tensor.ndim:
        return tensor.item()
    return [_elements(row) for row in tensor.unbind()]


def _array(tensor: Any, *, force: bool = False) -> np.ndarray:
    """Return the values as an array: one read, since an array may be as large as the data."""
    if not isinstance(tensor, FakeTensor):
        return _numpy(tensor, force=force)
    if tensor.requires_grad and not force:
        raise RuntimeError("numpy() of a tensor that requires grad: call detach() first")
    if tensor.device.type != "cpu" and not force:
        raise TypeError(f"numpy() of a tensor on {tensor.device}: call cpu() first")
    with without_modes():
        kind = _numpy(torch.empty(0, dtype=tensor.dtype)).dtype
    if tensor.constant is not None:
        return np.array(_elements(tensor), kind)
    if not tensor.numel():
        return np.empty(tensor.shape, kind)
    value = tensor[(0,) * tensor.ndim].item()
    return np.full(tensor.shape, value, kind) if value else np.zeros(tensor.shape, kind)


def _formatted(tensor: Any, spec: str) -> str:
    if isinstance(tensor, FakeTensor) and not tensor.ndim:
        return format(tensor.item(), spec)
    return _format(tensor, spec)
