"""Tensors made of symbolic numbers (`torch.tensor([n, 2])`), of which torch would take what they are now.

Invariant: type and device are those that eager gives the same list of numbers.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotlens.ir.sizes import is_symbol

KINDS: dict[type, Any] = {
    bool: torch.bool,
    torch.SymBool: torch.bool,
    int: torch.int64,
    torch.SymInt: torch.int64,
    float: torch.float64,
    torch.SymFloat: torch.float64,
}
"""By type the dtype that a number counts as; of floats the default dtype is taken."""


def made_of_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `func` gives, one of `MAKERS`; NotImplemented where there is no symbol, or something else."""
    data, *given = MAKERS[func](*args, **kwargs)
    numbers = list(_numbers(data))
    if not any(map(is_symbol, numbers)) or not all(_kind(number) in KINDS for number in numbers):
        return NotImplemented
    dtype, device, requires_grad = given
    dtype = dtype or _common(numbers)
    made = _made(data, lambda number: torch.scalar_tensor(number, dtype=dtype, device=device))
    return made.requires_grad_() if requires_grad else made


def _of_torch(
    data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> tuple[Any, ...]:
    return data, dtype, device, requires_grad


def _like(
    like: Any, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> tuple[Any, ...]:
    return data, dtype or like.dtype, device or like.device, requires_grad


MAKERS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch.tensor: _of_torch,
    torch.as_tensor: _of_torch,
    torch.Tensor.new_tensor: _like,
}
"""By function what its arguments are: numbers, dtype, device, whether a gradient is wanted."""


def _numbers(data: Any) -> Iterator[Any]:
    if type(data) in (list, tuple):
        for item in data:
            yield from _numbers(item)
    else:
        yield data


def _kind(number: Any) -> type:
    return torch.SymInt if isinstance(number, torch.SymInt) else type(number)


def _common(numbers: list[Any]) -> Any:
    found = {KINDS[_kind(number)] for number in numbers}
    if torch.float64 in found:
        return torch.get_default_dtype()
    return torch.int64 if torch.int64 in found else torch.bool


def _made(data: Any, scalar: Callable[[Any], Any]) -> Any:
    if type(data) not in (list, tuple):
        return scalar(data)
    return torch.stack([_made(item, scalar) for item in data])
