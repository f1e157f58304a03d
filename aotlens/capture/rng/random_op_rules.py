"""Random operators in terms of numbers from [0, 1), for devices with a counter-based generator.

Invariant: a rule returns what the operator promises, computed through `FunctionalRandom` alone, or
`NotImplemented` for another device, a user's generator or an unknown dtype.

Where the CUDA kernel transforms the same uniform numbers (`rand`, `uniform_`, `bernoulli_`, `exponential_`;
aten/src/ATen/native/cuda/DistributionTemplates.h), the rule does the same.  Normal numbers, integers,
permutations and dropout have the same distribution but other values than eager's.  Every other operator has
no rule and is unsupported.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.operators import Decompositions, aten
from aotlens.capture.rng.philox import FunctionalRandom, is_functional
from aotlens.capture.storage import dimension_order

EXACT_INTEGERS = 2**53
"""The largest range of which a float64 from [0, 1) reaches every integer."""


def _device(device: Any) -> torch.device:
    """Return the device that a factory's argument denotes."""
    resolved = torch.device(device) if device is not None else torch.get_default_device()
    if resolved.index is None and resolved.type == "cuda":
        return torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_initialized() else 0)
    return resolved


def _is_supported(device: torch.device, generator: Any = None) -> bool:
    return generator is None and is_functional(device)


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which random numbers of a dtype are computed."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _units_like(random: FunctionalRandom, like: Any, dtype: torch.dtype) -> Any:
    """Return numbers from [0, 1) in the layout of another tensor."""
    order = dimension_order(like)  # in which a kernel numbers the elements
    values = random.units([like.shape[dim] for dim in order], like.device, dtype)
    if order == list(range(like.dim())):
        return values
    return values.permute([order.index(dim) for dim in range(like.dim())])


def _normals(units: Callable[[], Any]) -> Any:
    """Return standard normal numbers by the Box-Muller method (1958)."""
    radius = (-2 * torch.log1p(-units())).sqrt()
    return radius * torch.cos(2 * math.pi * units())


def _empty_like(value: Any, options: dict[str, Any]) -> Any:
    """Return an empty tensor with the sizes, layout, dtype and device of a `_like` operator's result."""
    names = ("dtype", "device", "memory_format")
    return torch.empty_like(value, **{name: options[name] for name in names if name in options})


def _device_and_dtype(options: dict[str, Any]) -> tuple[torch.device, torch.dtype] | None:
    """Return device and dtype of a factory's result; None if no rule applies."""
    device, dtype = _device(options.get("device")), options.get("dtype") or torch.get_default_dtype()
    known = _is_supported(device, options.get("generator")) and dtype.is_floating_point
    return (device, dtype) if known else None


def rand(random: FunctionalRandom, size: Any, **options: Any) -> Any:
    kind = _device_and_dtype(options)
    return NotImplemented if kind is None else random.units(size, *kind)


def rand_like(random: FunctionalRandom, value: Any, **options: Any) -> Any:
    like = _empty_like(value, options)
    if not _is_supported(like.device, options.get("generator")) or not like.dtype.is_floating_point:
        return NotImplemented
    return _units_like(random, like, like.dtype)


def randn(random: FunctionalRandom, size: Any, **options: Any) -> Any:
    kind = _device_and_dtype(options)
    if kind is None:
        return NotImplemented
    device, dtype = kind
    return _normals(lambda: random.units(size, device, _compute_dtype(dtype))).to(dtype)


def randn_like(random: FunctionalRandom, value: Any, **options: Any) -> Any:
    return normal(random, _empty_like(value, options), generator=options.get("generator"))


def normal(
    random: FunctionalRandom, value: Any, mean: Any = 0.0, std: Any = 1.0, *, generator: Any = None
) -> Any:
    if not _is_supported(value.device, generator) or not value.dtype.is_floating_point:
        return NotImplemented
    made = _normals(lambda: _units_like(random, value, _compute_dtype(value.dtype)))
    return (made * std + mean).to(value.dtype)


def normal_around(random: FunctionalRandom, mean: Any, std: Any = 1.0, *, generator: Any = None) -> Any:
    """Compute `normal` with a tensor as mean, deviation, or both."""
    value = mean + torch.zeros_like(std) if isinstance(std, torch.Tensor) else mean
    return normal(random, value, mean, std, generator=generator)


def normal_of_size(
    random: FunctionalRandom, mean: float, std: float, size: Any, *, generator: Any = None, **rest: Any
) -> Any:
    made = randn(random, size, generator=generator, **rest)
    return made if made is NotImplemented else made * std + mean


def uniform(
    random: FunctionalRandom, value: Any, low: float = 0.0, high: float = 1.0, *, generator: Any = None
) -> Any:
    if not _is_supported(value.device, generator) or not value.dtype.is_floating_point:
        return NotImplemented
    units = _units_like(random, value, _compute_dtype(value.dtype))
    if (low, high) == (0.0, 1.0) and units.dtype is value.dtype:
        return units
    made = (units * (high - low) + low).to(value.dtype)
    return torch.where(made == high, low, made)  # rounding must not reach the upper bound


def bernoulli(random: FunctionalRandom, value: Any, *, generator: Any = None) -> Any:
    """Return ones with the probability in each element."""
    if not _is_supported(value.device, generator):
        return NotImplemented
    return (_units_like(random, value, _compute_dtype(value.dtype)) < value).to(value.dtype)


def bernoulli_with_p(random: FunctionalRandom, value: Any, p: Any = 0.5, *, generator: Any = None) -> Any:
    if not _is_supported(value.device, generator):
        return NotImplemented
    return (_units_like(random, value, _compute_dtype(value.dtype)) < p).to(value.dtype)


def dropout(random: FunctionalRandom, value: Any, p: float, train: bool | None) -> Any:
    if not _is_supported(value.device):
        return NotImplemented
    if train is False or p == 0:
        return value, torch.ones_like(value, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(value), torch.zeros_like(value, dtype=torch.bool)
    mask = _units_like(random, value, torch.float32) < 1 - p
    return value * mask * (1 / (1 - p)), mask


def exponential(random: FunctionalRandom, value: Any, rate: float = 1.0, *, generator: Any = None) -> Any:
    if not _is_supported(value.device, generator) or not value.dtype.is_floating_point:
        return NotImplemented
    units = _units_like(random, value, _compute_dtype(value.dtype))
    half = torch.finfo(units.dtype).eps / 2
    at_one = (units == 0) | (units >= 1 - half)  # the kernel uses (0, 1]: its 1 is our 0
    return (torch.where(at_one, -half, torch.where(at_one, 1.0, units).log()) * (-1 / rate)).to(value.dtype)


def _integers(low: Any, high: Any, units: Callable[[], Any], dtype: torch.dtype) -> Any:
    if isinstance(low, int) and isinstance(high, int) and high - low > EXACT_INTEGERS:
        return NotImplemented
    return ((units() * (high - low)).floor() + low).to(dtype)


def randint(random: FunctionalRandom, *bounds_and_size: Any, **options: Any) -> Any:
    """Compute `randint` for `(high, size)` or `(low, high, size)`."""
    *bounds, size = bounds_and_size
    device = _device(options.get("device"))
    if not _is_supported(device, options.get("generator")):
        return NotImplemented
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    units = lambda: random.units(size, device, torch.float64)
    return _integers(low, high, units, options.get("dtype") or torch.int64)


def randint_like(random: FunctionalRandom, value: Any, *bounds: Any, **options: Any) -> Any:
    """Compute `randint_like`; bounds are `high`, or `low` and `high`."""
    like = _empty_like(value, options)
    if not _is_supported(like.device, options.get("generator")):
        return NotImplemented
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return _integers(low, high, lambda: _units_like(random, like, torch.float64), like.dtype)


def random_integers(random: FunctionalRandom, value: Any, *bounds: Any, generator: Any = None) -> Any:
    """Compute `random_` with an upper bound, or with both."""
    if not bounds or bounds[-1] is None or not _is_supported(value.device, generator):
        return NotImplemented
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return _integers(low, high, lambda: _units_like(random, value, torch.float64), value.dtype)


def randperm(random: FunctionalRandom, count: Any, **options: Any) -> Any:
    device = _device(options.get("device"))
    if not _is_supported(device, options.get("generator")):
        return NotImplemented
    return random.units([count], device, torch.float64).argsort().to(options.get("dtype") or torch.int64)


Rule = Callable[..., Any]

RANDOM_OP_RULES: dict[Any, Rule] = {
    aten.rand.default: rand,
    aten.rand.generator: rand,
    aten.rand_like.default: rand_like,
    aten.rand_like.generator: rand_like,
    aten.randn.default: randn,
    aten.randn.generator: randn,
    aten.randn_like.default: randn_like,
    aten.randn_like.generator: randn_like,
    aten.normal_functional.default: normal,
    aten.normal.Tensor_float: normal_around,
    aten.normal.Tensor_Tensor: normal_around,
    aten.normal.float_Tensor: normal_around,
    aten.normal.float_float: normal_of_size,
    aten.uniform.default: uniform,
    aten.bernoulli.default: bernoulli,
    aten.bernoulli.p: bernoulli_with_p,
    aten.bernoulli.Tensor: bernoulli_with_p,
    aten.native_dropout.default: dropout,
    aten.exponential.default: exponential,
    aten.randint.default: randint,
    aten.randint.generator: randint,
    aten.randint.low: randint,
    aten.randint.low_generator: randint,
    aten.randint_like.default: randint_like,
    aten.randint_like.low_dtype: randint_like,
    getattr(aten.random, "from"): random_integers,
    aten.random.to: random_integers,
    aten.randperm.default: randperm,
    aten.randperm.generator: randperm,
}
"""One row per overload."""


@dataclass(frozen=True, slots=True)
class RandomRule:
    """A decomposition that needs the RNG state of the recording that runs it."""

    rule: Rule
    fallback: Callable[..., Any] | None
    """The decomposition if the rule returns NotImplemented."""

    def run(self, random: FunctionalRandom, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = self.rule(random, *args, **kwargs)
        if result is NotImplemented and self.fallback is not None:
            return self.fallback(*args, **kwargs)
        return result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run without a recording, which has no RNG state."""
        return NotImplemented if self.fallback is None else self.fallback(*args, **kwargs)


def has_random_rules(decompositions: Decompositions) -> bool:
    return isinstance(decompositions.get(aten.rand.default), RandomRule)


def with_random_rules(decompositions: Decompositions) -> Decompositions:
    """Return the table with the rules for random operators, which take precedence."""
    rules = {op: RandomRule(rule, decompositions.get(op)) for op, rule in RANDOM_OP_RULES.items()}
    return {**decompositions, **rules}


def apply_rule(rule: Rule, random: FunctionalRandom, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return a decomposition's result for one call."""
    if isinstance(rule, RandomRule):
        return rule.run(random, args, kwargs)
    return rule(*args, **kwargs)
