"""What torch is told about AOT compilation by the user's program, whoever compiles."""

from collections.abc import Callable

import torch

is_any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled
"""Whether autocast is on for some device."""


def debug_assert() -> bool:
    """Whether torch is told to check at run time what its AOT compiler assumed."""
    from torch._functorch import config  # what the user's program sets, whoever compiles

    return bool(config.debug_assert)


def functionalizes_rng() -> bool:
    """Whether torch is told to make random numbers functional."""
    from torch._functorch import config

    return bool(config.functionalize_rng_ops)
