"""Make a call again with the random numbers of an earlier one, in another precision.

A generator gives other numbers in double precision.  Invariant: an operator that also computes something,
such as attention with dropout, is not replayed, and the call then has no reference.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotlens.ir.program import is_random_op
from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.torch_api.operators import tensor_leaves

aten = torch.ops.aten

RANDOM_NUMBERS = frozenset(
    {
        "bernoulli", "bernoulli_", "binomial", "cauchy_", "exponential_", "geometric_", "log_normal_",
        "multinomial", "normal", "normal_", "poisson", "rand", "rand_like", "randint", "randint_like",
        "randn", "randn_like", "random_", "randperm", "uniform_",
    }
)  # fmt: skip
"""Operators whose result is random numbers and nothing else."""


RandomResult = tuple[Any, Tensor | None]
"""A random operator with its numbers; None where it also computes something."""


class RandomRecorder(TorchDispatchMode):
    """A mode that records the result of each random operator."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[RandomResult] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_random_op(func):
            self.numbers.append((func, _numbers(func, result)))
        return result


class Replay:
    """The recorded numbers, to be taken one by one."""

    def __init__(self, numbers: Sequence[RandomResult]) -> None:
        self._remaining = deque(numbers)
        self.is_complete = True
        """Whether every random operator so far had its numbers."""

    def result(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the next random operator."""
        recorded, numbers = self._remaining.popleft() if self._remaining else (func, None)
        if recorded is not func or numbers is None:
            self.is_complete = False
            return func(*args, **kwargs)
        if func is aten.native_dropout.default:
            return _dropout(args, numbers)
        if func._schema.is_mutable:
            return args[0].copy_(numbers)
        example = func(*args, **kwargs)
        return numbers.to(example.dtype).view_as(example)


def _numbers(func: Any, result: Any) -> Tensor | None:
    if func is aten.native_dropout.default:
        return result[1].clone()
    tensors = tensor_leaves(result)
    name = func._schema.name.split("::")[1]
    return tensors[0].clone() if name in RANDOM_NUMBERS and len(tensors) == 1 else None


def _dropout(args: tuple[Any, ...], mask: Tensor) -> tuple[Tensor, Tensor]:
    value, p, train = args
    if train is False:
        return value.clone(), torch.ones_like(mask)
    return value * mask * (0.0 if p == 1.0 else 1.0 / (1.0 - p)), mask
