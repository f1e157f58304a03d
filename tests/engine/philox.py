"""A counter-based generator on the CPU, with which functional random numbers run without a GPU.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from aotlens.capture.rng.rng_state import RandomSource

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
INCREMENTS = (0x9E3779B9, 0xBB67AE85)
Words = tuple[int, int, int, int]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Four words of 32 bits for a counter and a key."""
    a, b, c, d = counter
    first, second = key
    for _ in range(10):
        left, right = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = (
            (right >> 32) ^ b ^ first,
            right & 0xFFFFFFFF,
            (left >> 32) ^ d ^ second,
            left & 0xFFFFFFFF,
        )
        first, second = (first + INCREMENTS[0]) & 0xFFFFFFFF, (second + INCREMENTS[1]) & 0xFFFFFFFF
    return a, b, c, d


def units(count: int, seed: int, offset: int) -> list[float]:
    """Numbers from [0, 1): four per counter."""
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    found: list[float] = []
    for block in range((count + 3) // 4):
        at = offset // 4 + block
        words = philox((at & 0xFFFFFFFF, at >> 32, 0, 0), key)
        found += [(word >> 8) * 2.0**-24 for word in words]
    return found[:count]


@torch.library.custom_op(
    "aotlens_tests::philox_rand",
    mutates_args=(),
    schema="(SymInt[] size, Tensor seed, Tensor offset, int[]? stride, Device? device=None, "
    "ScalarType? dtype=None) -> (Tensor, Tensor)",
)
def philox_rand(
    size: Any, seed: Tensor, offset: Tensor, stride: Any, device: Any = None, dtype: Any = None
) -> tuple[Tensor, Tensor]:
    count = torch.Size(size).numel()
    values = torch.tensor(units(count, int(seed), int(offset)), dtype=dtype).reshape(size)
    return values, torch.tensor((count + 3) // 4 * 4)


@philox_rand.register_fake
def _(
    size: Any, seed: Tensor, offset: Tensor, stride: Any, device: Any = None, dtype: Any = None
) -> tuple[Tensor, Tensor]:
    return torch.empty(size, dtype=dtype, device=device), torch.empty((), dtype=torch.int64)


@dataclass
class State:
    """The generator."""

    seed: int = 0
    offset: int = 0

    def read(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.seed), torch.tensor(self.offset)

    def advance(self, offset: int) -> None:
        self.offset = offset

    def draw(self, size: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        values, jump = philox_rand(size, *self.read(), None, torch.device("cpu"), dtype)
        self.offset += int(jump)
        return values


STATE = State()

SOURCE = RandomSource(
    torch.ops.aotlens_tests.philox_rand.default,
    "__import__('tests.engine.philox').engine.philox.STATE.read()",
    "__import__('tests.engine.philox').engine.philox.STATE.advance({offset})",
)


class Eager(TorchDispatchMode):
    """Eager on a device whose generator is `STATE`: `rand` and `rand_like` draw from it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.rand.default:
            return STATE.draw(args[0], kwargs.get("dtype") or torch.float32)
        if func is torch.ops.aten.rand_like.default:
            return STATE.draw(args[0].shape, args[0].dtype)
        return func(*args, **kwargs)


@contextmanager
def seeded(seed: int, offset: int = 0) -> Iterator[State]:
    """Within it, the generator starts from this state."""
    before = STATE.seed, STATE.offset
    STATE.seed, STATE.offset = seed, offset
    try:
        yield STATE
    finally:
        STATE.seed, STATE.offset = before
