"""Python numbers that `while_loop` carries from step to step.

Invariant: the recorded loop carries zero-dimensional tensors; its functions receive each as a data-dependent
number, and their results for it become tensors again.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.hop.bodies import runner_of
from aotlens.torch_api.fake.tensors import allow_unbacked_symbols
from aotlens.torch_api.modes import current_mode
from aotlens.torch_api.symbolic import make_shape_env

NUMBERS = (int, torch.SymInt)


def carries_scalars(func: Any, args: tuple[Any, ...]) -> bool:
    """Return True if the call is a loop that carries a number."""
    return bool(func.name() == "while_loop" and any(isinstance(value, NUMBERS) for value in args[2]))


def record_loop(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the results of a recorded loop that carries numbers; NotImplemented for any other call."""
    if isinstance(current_mode(), Recording) and carries_scalars(func, args):
        return record_scalar_loop(func, args, kwargs)
    return NotImplemented


def record_scalar_loop(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the results of a loop that carries numbers; call it with the recorder on the stack of modes."""
    condition, step, carried, more, *_ = args
    number_indices = {index for index, value in enumerate(carried) if isinstance(value, NUMBERS)}

    def tensor_condition(*values: Any) -> Any:
        return _tensor(_run(condition, _numbers(values, number_indices)), torch.bool)

    def tensor_step(*values: Any) -> Any:
        results = _run(step, _numbers(values, number_indices))
        return tuple(
            _tensor(value, torch.int64) if index in number_indices else value
            for index, value in enumerate(results)
        )

    initial = tuple(
        _start(value) if index in number_indices else value for index, value in enumerate(carried)
    )
    fake_mode = current_mode().fake_mode
    if fake_mode.shape_env is None:
        fake_mode.shape_env = make_shape_env()
    with allow_unbacked_symbols(fake_mode):  # behind Dynamo they are errors
        return _numbers(func(tensor_condition, tensor_step, initial, tuple(more), **kwargs), number_indices)


def _run(function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    mode = current_mode()
    return (runner_of(mode, function) if isinstance(mode, Recording) else function)(*operands)


def _numbers(values: Any, number_indices: set[int]) -> tuple[Any, ...]:
    return tuple(value.item() if index in number_indices else value for index, value in enumerate(values))


def _start(value: Any) -> torch.Tensor:
    """Return a tensor whose number is unknown to the functions, unlike that of `torch.tensor(3)`."""
    return torch.empty((), dtype=torch.int64).fill_(value)


def _tensor(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, torch.SymBool):
        value = torch.sym_ite(value, 1, 0)
    return torch.scalar_tensor(value, dtype=dtype)
