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
from functools import partial
from typing import Any

import torch

from aotlens.capture.operators import Decompositions, aten
from aotlens.capture.rng.rng_state import FunctionalRandom, has_functional_rng

EXACT_INTEGERS = 2**53
"""The largest range of which a float64 from [0, 1) reaches every integer."""

Units = Callable[[torch.dtype], Any]
"""Returns numbers from [0, 1) of a dtype, in the sizes and the layout of the operator's result."""
Result = tuple[torch.Tensor, Sequence[Any]]
"""A fake tensor with the metadata of the operator's result, and the parameters of the distribution."""


def _sized(args: Sequence[Any], options: dict[str, Any], dtype: torch.dtype | None = None) -> Result:
    """Describe the result of a factory, whose last positional argument is the size."""
    *parameters, size = args
    like = torch.empty(size, dtype=options.get("dtype") or dtype, device=options.get("device"))
    return like, parameters


_sized_integers = partial(_sized, dtype=torch.int64)


def _sized_permutation(args: Sequence[Any], options: dict[str, Any]) -> Result:
    """Describe the result of `randperm`, which takes a count."""
    return _sized_integers([list(args)], options)


def _alike(args: Sequence[Any], options: dict[str, Any]) -> Result:
    """Describe the result of a `_like` operator."""
    names = ("dtype", "device", "memory_format")
    known = {name: options[name] for name in names if name in options}
    return torch.empty_like(args[0], **known), args[1:]


def _in_place(args: Sequence[Any], options: dict[str, Any]) -> Result:
    """Describe the result of an operator that has the sizes and the dtype of its first argument."""
    return args[0], args[1:]


def _broadcast(args: Sequence[Any], options: dict[str, Any]) -> Result:
    """Describe the result of `normal` with a tensor as mean, deviation, or both."""
    mean, std = (*args, 1.0)[:2]
    return mean + torch.zeros_like(std) if isinstance(std, torch.Tensor) else mean, (mean, std)


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which CUDA's kernels compute random numbers of a dtype, half precision included."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _units(units: Units, like: Any) -> Any:
    return units(like.dtype)


def _standard_normal(units: Units, like: Any) -> Any:
    return _normals(units, like).to(like.dtype)


def _normal(units: Units, like: Any, mean: Any = 0.0, std: Any = 1.0) -> Any:
    return (_normals(units, like) * std + mean).to(like.dtype)


def _normals(units: Units, like: Any) -> Any:
    """Return standard normal numbers by the Box-Muller method (1958)."""
    dtype = _compute_dtype(like.dtype)
    radius = (-2 * torch.log1p(-units(dtype))).sqrt()
    return radius * torch.cos(2 * math.pi * units(dtype))


def _uniform(units: Units, like: Any, low: float = 0.0, high: float = 1.0) -> Any:
    values = units(_compute_dtype(like.dtype))
    if (low, high) == (0.0, 1.0) and values.dtype is like.dtype:
        return values
    made = (values * (high - low) + low).to(like.dtype)
    return torch.where(made == high, low, made)  # rounding must not reach the upper bound


def _bernoulli(units: Units, like: Any, p: Any = None) -> Any:
    """Return ones with a probability: `p`, or that in each element."""
    return (units(_compute_dtype(like.dtype)) < (like if p is None else p)).to(like.dtype)


def _dropout(units: Units, value: Any, p: float, train: bool | None) -> Any:
    if train is False or p == 0:
        return value, torch.ones_like(value, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(value), torch.zeros_like(value, dtype=torch.bool)
    mask = units(torch.float32) < 1 - p
    return value * mask * (1 / (1 - p)), mask


def _exponential(units: Units, like: Any, rate: float = 1.0) -> Any:
    values = units(_compute_dtype(like.dtype))
    half = torch.finfo(values.dtype).eps / 2
    at_one = (values == 0) | (values >= 1 - half)  # the kernel uses (0, 1]: its 1 is our 0
    return (torch.where(at_one, -half, torch.where(at_one, 1.0, values).log()) * (-1 / rate)).to(like.dtype)


def _integers(units: Units, like: Any, *bounds: Any) -> Any:
    """Return integers up to `high`, or from `low` to `high`; without bounds the dtype sets the range."""
    if not bounds or bounds[-1] is None:
        return NotImplemented
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    if isinstance(low, int) and isinstance(high, int) and high - low > EXACT_INTEGERS:
        return NotImplemented
    return ((units(torch.float64) * (high - low)).floor() + low).to(like.dtype)


def _permutation(units: Units, like: Any) -> Any:
    return units(torch.float64).argsort().to(like.dtype)


@dataclass(frozen=True, slots=True)
class Rule:
    """One random operator."""

    values: Callable[..., Any]
    """Takes units, a tensor like the result, and the parameters; returns the result."""
    result: Callable[[Sequence[Any], dict[str, Any]], Result]
    floating: bool = True
    """Whether the result must be a floating-point tensor."""


RANDOM_OP_RULES: dict[Any, Rule] = {
    aten.rand.default: Rule(_units, _sized),
    aten.rand.generator: Rule(_units, _sized),
    aten.rand_like.default: Rule(_units, _alike),
    aten.rand_like.generator: Rule(_units, _alike),
    aten.randn.default: Rule(_standard_normal, _sized),
    aten.randn.generator: Rule(_standard_normal, _sized),
    aten.randn_like.default: Rule(_standard_normal, _alike),
    aten.randn_like.generator: Rule(_standard_normal, _alike),
    aten.normal_functional.default: Rule(_normal, _in_place),
    aten.normal.Tensor_float: Rule(_normal, _broadcast),
    aten.normal.Tensor_Tensor: Rule(_normal, _broadcast),
    aten.normal.float_Tensor: Rule(_normal, _broadcast),
    aten.normal.float_float: Rule(_normal, _sized),
    aten.uniform.default: Rule(_uniform, _in_place),
    aten.bernoulli.default: Rule(_bernoulli, _in_place, floating=False),
    aten.bernoulli.p: Rule(_bernoulli, _in_place, floating=False),
    aten.bernoulli.Tensor: Rule(_bernoulli, _in_place, floating=False),
    aten.native_dropout.default: Rule(_dropout, _in_place, floating=False),
    aten.exponential.default: Rule(_exponential, _in_place),
    aten.randint.default: Rule(_integers, _sized_integers, floating=False),
    aten.randint.generator: Rule(_integers, _sized_integers, floating=False),
    aten.randint.low: Rule(_integers, _sized_integers, floating=False),
    aten.randint.low_generator: Rule(_integers, _sized_integers, floating=False),
    aten.randint_like.default: Rule(_integers, _alike, floating=False),
    aten.randint_like.low_dtype: Rule(_integers, _alike, floating=False),
    getattr(aten.random, "from"): Rule(_integers, _in_place, floating=False),
    aten.random.to: Rule(_integers, _in_place, floating=False),
    aten.randperm.default: Rule(_permutation, _sized_permutation, floating=False),
    aten.randperm.generator: Rule(_permutation, _sized_permutation, floating=False),
}
"""One row per overload."""


@dataclass(frozen=True, slots=True)
class RandomRule:
    """A decomposition that needs the RNG state of the recording that runs it."""

    rule: Rule
    fallback: Callable[..., Any] | None
    """The decomposition if the rule does not apply."""

    def run(self, random: FunctionalRandom, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        like, parameters = random.untracked(lambda: self.rule.result(args, kwargs))
        result = NotImplemented
        if self._applies(like, kwargs.get("generator")):
            result = self.rule.values(partial(random.units_like, like), like, *parameters)
        return self(*args, **kwargs) if result is NotImplemented else result

    def _applies(self, like: Any, generator: Any) -> bool:
        is_known = like.dtype.is_floating_point or not self.rule.floating
        return generator is None and has_functional_rng(like.device) and is_known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run without the rule, or without a recording, which has no RNG state."""
        return NotImplemented if self.fallback is None else self.fallback(*args, **kwargs)


def has_random_rules(decompositions: Decompositions) -> bool:
    return isinstance(decompositions.get(aten.rand.default), RandomRule)


def with_random_rules(decompositions: Decompositions) -> Decompositions:
    """Return the table with the rules for random operators, which take precedence."""
    rules = {op: RandomRule(rule, decompositions.get(op)) for op, rule in RANDOM_OP_RULES.items()}
    return {**decompositions, **rules}


def apply_rule(
    rule: Callable[..., Any], random: FunctionalRandom, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Return a decomposition's result for one call."""
    if isinstance(rule, RandomRule):
        return rule.run(random, args, kwargs)
    return rule(*args, **kwargs)
