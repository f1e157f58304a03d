"""Save and restore torch's RNG states, on the CPU and on each GPU in use.

Invariant: the states are read from the generators themselves, so a block may replace torch's functions that
read and set them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

__all__ = ["random_states", "same_random_state", "same_random_state_on_failure"]


def random_states() -> list[torch.Tensor]:
    """Return the state of each generator in use."""
    return [state for _, state in _states()]


@contextmanager
def same_random_state() -> Iterator[None]:
    """Restore the random state when the block ends."""
    states = _states()
    try:
        yield
    finally:
        _restore(states)


@contextmanager
def same_random_state_on_failure() -> Iterator[None]:
    """Restore the random state when the block raises."""
    states = _states()
    try:
        yield
    except BaseException:
        _restore(states)
        raise


_States = Sequence[tuple[torch.Generator, torch.Tensor]]


def _states() -> _States:
    on_gpu = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [(generator, generator.get_state()) for generator in (torch.default_generator, *on_gpu)]


def _restore(states: _States) -> None:
    for generator, state in states:
        generator.set_state(state)
