"""Random operators by rejection sampling: the first accepted of a fixed number of proposals.

Invariant: the distribution is the operator's, except that no proposal is accepted with probability below
1e-14; values differ from eager's, and memory holds all proposals at once.
"""

import math
from typing import Any

import torch

from aotlens.capture.rng.philox import FunctionalRandom, is_functional

GAMMA_PROPOSALS = 16
"""The method accepts at least 0.95 of them (Marsaglia and Tsang, 2000)."""
BINOMIAL_PROPOSALS = 32
"""The method accepts at least 0.68 of them (Hormann, 1993) if ten or more successes are expected."""
FEW = 10.0
"""Expected successes below which counts are found by cumulative probability."""
MOST_OF_FEW = 72
"""More successes than that, if fewer than `FEW` are expected, have a probability below 1e-35."""


def _first_good(proposals: Any, is_good: Any) -> Any:
    return proposals.gather(0, is_good.to(torch.int32).argmax(0, keepdim=True)).squeeze(0)


def _is_supported(value: Any, generator: Any) -> bool:
    return generator is None and is_functional(value.device) and value.dtype.is_floating_point


def gamma(random: FunctionalRandom, shape: Any, generator: Any = None) -> Any:
    """Compute `_standard_gamma` by Marsaglia and Tsang's method; shapes below 1 are boosted."""
    if not _is_supported(shape, generator):
        return NotImplemented

    def units(*first: int) -> Any:
        return random.units([*first, *shape.shape], shape.device, torch.float64)

    wide = shape.to(torch.float64)
    level = torch.where(wide < 1, wide + 1, wide) - 1 / 3
    radius = (-2 * torch.log1p(-units(GAMMA_PROPOSALS))).sqrt()
    normal = radius * torch.cos(2 * math.pi * units(GAMMA_PROPOSALS))
    cubed = (1 + normal / (9 * level).sqrt()) ** 3
    bound = 0.5 * normal**2 + level * (1 - cubed + cubed.clamp(min=1e-300).log())
    made = level * _first_good(cubed, (cubed > 0) & (torch.log1p(-units(GAMMA_PROPOSALS)) < bound))
    smaller = torch.where(wide < 1, (1 - units()) ** (1 / wide), 1.0)
    return (made * smaller).to(shape.dtype).clamp(min=torch.finfo(shape.dtype).tiny)


def dirichlet(random: FunctionalRandom, shape: Any, generator: Any = None) -> Any:
    made = gamma(random, shape, generator)
    return made if made is NotImplemented else made / made.sum(-1, keepdim=True)


def binomial(random: FunctionalRandom, count: Any, prob: Any, generator: Any = None) -> Any:
    """Compute `binomial`; counts failures instead of successes if they are rarer."""
    if not _is_supported(count, generator):
        return NotImplemented
    trials, chance = torch.broadcast_tensors(count.to(torch.float64), prob.to(torch.float64))
    rarer = torch.minimum(chance, 1 - chance)
    is_few = trials * rarer < FEW
    # Both branches get valid parameters, also where their result is not used.
    few = _few_successes(random, trials, torch.where(is_few, rarer, 0.0))
    many = _many_successes(random, torch.where(is_few, 4 * FEW, trials), torch.where(is_few, 0.5, rarer))
    successes = torch.where(is_few, few, many)
    return torch.where(chance > 0.5, trials - successes, successes).to(count.dtype)


def _log_probability(successes: Any, trials: Any, chance: Any) -> Any:
    ways = torch.lgamma(trials + 1) - torch.lgamma(successes + 1) - torch.lgamma(trials - successes + 1)
    return ways + torch.xlogy(successes, chance) + (trials - successes) * torch.log1p(-chance)


def _few_successes(random: FunctionalRandom, trials: Any, chance: Any) -> Any:
    """Return how many cumulative probabilities lie below a number from [0, 1)."""
    successes = torch.arange(MOST_OF_FEW, device=trials.device, dtype=torch.float64)
    successes = successes.view(-1, *(1 for _ in trials.shape))
    possible = torch.minimum(successes, trials)
    probability = torch.where(successes <= trials, _log_probability(possible, trials, chance).exp(), 0.0)
    unit = random.units([*trials.shape], trials.device, torch.float64)
    return torch.minimum((probability.cumsum(0) <= unit).sum(0).to(torch.float64), trials)


def _many_successes(random: FunctionalRandom, trials: Any, chance: Any) -> Any:
    """Compute Hormann's transformed rejection (BTRS)."""
    spread = (trials * chance * (1 - chance)).sqrt()
    wide = 1.15 + 2.53 * spread
    narrow = -0.0873 + 0.0248 * wide + 0.01 * chance
    shift = random.units([BINOMIAL_PROPOSALS, *trials.shape], trials.device, torch.float64) - 0.5
    height = 1 - random.units([BINOMIAL_PROPOSALS, *trials.shape], trials.device, torch.float64)
    edge = 0.5 - shift.abs()
    proposed = ((2 * narrow / edge + wide) * shift + trials * chance + 0.5).floor()
    inside = (proposed >= 0) & (proposed <= trials)
    possible = torch.minimum(proposed.clamp(min=0), trials)
    likeliest = ((trials + 1) * chance).floor()
    gain = _log_probability(possible, trials, chance) - _log_probability(likeliest, trials, chance)
    scaled = height * (2.83 + 5.1 / wide) * spread / (narrow / edge**2 + wide)
    is_good = inside & (((edge >= 0.07) & (height <= 0.92 - 4.2 / wide)) | (scaled.log() <= gain))
    return _first_good(possible, is_good)
