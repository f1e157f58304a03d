"""Run torch's random operators with the numbers that kernels generated, and test their distribution.

The kernels use another generator than eager, so values cannot be compared with eager's own.  Invariant: with
the same numbers in the same calls everything else must agree, forward and backward.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aotlens.codegen.gpu.interpreter.records import RandomNumbersOfSeed
from aotlens.gpu_emulation.tensor_devices import is_on_gpu, mark_device
from aotlens.torch_api.modes import TorchDispatchMode

aten = torch.ops.aten

FALSE_ALARM = 1e-9
"""The probability that correctly distributed numbers are reported as deviating."""


def _mask(number: Tensor, like: Tensor, probability: float) -> Tensor:
    return (number < probability).to(like.dtype)


FORMS: dict[Any, Callable[[Any, Any], tuple[Sequence[int], torch.dtype]]] = {
    aten.rand.default: lambda args, kwargs: (args[0], kwargs.get("dtype") or torch.get_default_dtype()),
    aten.randn.default: lambda args, kwargs: (args[0], kwargs.get("dtype") or torch.get_default_dtype()),
    aten.randint.low: lambda args, kwargs: (args[2], kwargs.get("dtype") or torch.int64),
    aten.bernoulli.p: lambda args, kwargs: (args[0].shape, torch.float32),
}
"""The random operators that kernels implement, with the shape and dtype of their numbers."""


NOTHING = RandomNumbersOfSeed(
    "rand", torch.zeros(0, dtype=torch.int64), torch.zeros(0), repeats=0, agrees=True
)
"""The numbers of a random op whose result is unused, so that no kernel generates them."""


class RandomReplay(TorchDispatchMode):
    """A mode in which each random op returns the numbers that a kernel generated for it."""

    supports_higher_order_operators = True

    def __init__(self, random_numbers: Sequence[RandomNumbersOfSeed | None]) -> None:
        super().__init__()
        self._recorded = list(random_numbers)
        self.used = 0
        self.replayed: list[RandomNumbersOfSeed] = []
        """The numbers for elements that the program has; kernels generate whole blocks."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        form = FORMS.get(func)
        if form is None or options.get("generator") is not None:
            return func(*args, **options)
        index, self.used = self.used, self.used + 1
        if index >= len(self._recorded):
            return func(*args, **options)
        shape, dtype = form(args, options)
        random_numbers = self._recorded[index] or NOTHING
        random_numbers = _cut(random_numbers, math.prod(shape))
        self.replayed.append(random_numbers)
        number = replayed_numbers(random_numbers, shape, dtype)
        result = _mask(number, args[0], args[1]) if func is aten.bernoulli.p else number
        return mark_device(result, on_gpu=True) if _is_created_on_gpu(args, options) else result


def _is_created_on_gpu(args: Any, kwargs: Any) -> bool:
    """Return True if the result is on the emulated GPU, by its device argument or the tensor it is like."""
    device = kwargs.get("device")
    if device is not None:
        return torch.device(device).type == "cuda"
    return any(isinstance(arg, Tensor) and is_on_gpu(arg) for arg in args)


def _cut(random_numbers: RandomNumbersOfSeed, count: int) -> RandomNumbersOfSeed:
    inside = random_numbers.offsets < count
    return replace(
        random_numbers, offsets=random_numbers.offsets[inside], values=random_numbers.values[inside]
    )


def replayed_numbers(random_numbers: RandomNumbersOfSeed, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return the numbers as the tensor of the random op; NaN, or the largest integer, where there is none."""
    blank = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max
    flat = torch.full((math.prod(shape),), blank, dtype=dtype)
    flat[random_numbers.offsets] = random_numbers.values.to(dtype)
    return flat.view(tuple(shape))


@dataclass(frozen=True, slots=True)
class Law:
    """The distribution of one random op's numbers."""

    count: int
    text: str
    """`uniform on [0, 1)`, `standard normal`, `integers`."""
    deviates: str = ""
    """How the numbers deviate; empty if they do not."""


def law_of(random_numbers: RandomNumbersOfSeed) -> Law:
    """Test the numbers by the largest distance between distributions (Kolmogorov and Smirnov)."""
    values = random_numbers.values.double().sort().values
    count = len(values)
    if random_numbers.kind == "randint" or not count:
        return Law(count, "integers")
    if random_numbers.kind == "randn":
        return Law(count, "standard normal", _deviation(torch.special.ndtr(values)))
    name = "uniform on [0, 1)"
    if values[0] < 0 or values[-1] >= 1:
        return Law(count, name, f"numbers from {values[0]:.3g} to {values[-1]:.3g}")
    return Law(count, name, _deviation(values))  # the probability of a smaller number is the number itself


def _deviation(probabilities: Tensor) -> str:
    """Return how far sorted numbers are from their law; empty if chance explains it.

    `probabilities` holds, for each number, the probability of a smaller one under the law.
    """
    count = len(probabilities)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = float(torch.maximum(probabilities - steps[:-1], steps[1:] - probabilities).max())
    most = math.sqrt(-math.log(FALSE_ALARM / 2) / (2 * count))
    if distance <= most:
        return ""
    return f"its distribution is {distance:.2g} off, where chance allows {most:.2g}"
