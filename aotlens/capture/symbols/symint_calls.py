"""Calls in which torch would specialise a symbolic number: indexing, and `torch.tensor` of a list."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotlens.ir.symbols import is_symbol
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.modes import TorchFunctionMode


def index_with_scalars(index: Any) -> Any:
    """Return the index with integer tensors as scalars, which is how torch's own kernel reads them."""
    if type(index) is tuple:
        return tuple(map(index_with_scalars, index))
    is_number = type(index) is FakeTensor and not index.dim() and index.dtype in INTEGER_DTYPES
    return index.item() if is_number else index


INTEGER_DTYPES = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
"""Integer dtypes of an index; a uint8 tensor is a mask."""


def _index_with_symbols(func: Any, tensor: Any, index: Any, *value: Any) -> Any:
    """Index `tensor[index]` with symbols by `select`; return NotImplemented if there are none."""
    items = index if isinstance(index, tuple) else (index,)
    if not any(map(is_symbol, items)):
        return NotImplemented
    tensor, rest = _select(tensor, items)
    return tensor if not rest and not value else func(tensor, rest or (...,), *value)


def _select(tensor: Any, items: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Select the symbolic indices; return the tensor and the other indices."""
    left = tensor.dim() - sum(_consumed_dims(item) for item in items if item is not ...)
    dim, rest = 0, list[Any]()
    for item in items:
        if is_symbol(item):
            tensor = tensor.select(dim, item)
        else:
            rest.append(item)
            dim += left if item is ... else _consumed_dims(item)
    return tensor, tuple(rest)


def _consumed_dims(item: Any) -> int:
    """Return how many dimensions of the indexed tensor an index consumes."""
    if item is None or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 1


DTYPES: dict[type, Any] = {
    bool: torch.bool,
    torch.SymBool: torch.bool,
    int: torch.int64,
    torch.SymInt: torch.int64,
    float: torch.float64,
    torch.SymFloat: torch.float64,
}
"""The dtype of a Python number; floats use the default dtype."""


TENSOR_FACTORIES = frozenset({torch.tensor, torch.as_tensor, torch.Tensor.new_tensor})


def _tensor_from_symbols(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a function in `TENSOR_FACTORIES`; NotImplemented without symbols."""
    like, args = (args[0], args[1:]) if func is torch.Tensor.new_tensor else (None, args)
    options = {**dict(zip(("data", "dtype", "device"), args, strict=False)), **kwargs}
    numbers = list(_numbers(options["data"]))
    if not any(map(is_symbol, numbers)) or not all(_number_type(number) in DTYPES for number in numbers):
        return NotImplemented
    dtype = options.get("dtype") or (_common_dtype(numbers) if like is None else like.dtype)
    device = options.get("device") or (None if like is None else like.device)
    made = _stacked(options["data"], lambda number: torch.scalar_tensor(number, dtype=dtype, device=device))
    return made.requires_grad_() if options.get("requires_grad") else made


def _numbers(data: Any) -> Iterator[Any]:
    if type(data) in (list, tuple):
        for item in data:
            yield from _numbers(item)
    else:
        yield data


def _number_type(number: Any) -> type:
    return torch.SymInt if isinstance(number, torch.SymInt) else type(number)


def _common_dtype(numbers: list[Any]) -> Any:
    dtypes = {DTYPES[_number_type(number)] for number in numbers}
    if torch.float64 in dtypes:
        return torch.get_default_dtype()
    return torch.int64 if torch.int64 in dtypes else torch.bool


def _stacked(data: Any, scalar: Callable[[Any], Any]) -> Any:
    if type(data) not in (list, tuple):
        return scalar(data)
    return torch.stack([_stacked(item, scalar) for item in data])


class SymbolicCalls(TorchFunctionMode):
    """Handles symbolic numbers as indices, and in the data of new tensors."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result: Any = NotImplemented
        if func is torch.Tensor.__getitem__ or func is torch.Tensor.__setitem__:
            result = _index_with_symbols(func, *args)
        elif func in TENSOR_FACTORIES:
            result = _tensor_from_symbols(func, args, kwargs or {})
        return func(*args, **(kwargs or {})) if result is NotImplemented else result
