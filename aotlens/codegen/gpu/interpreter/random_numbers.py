"""Record the random numbers that kernels generate, by seed, so that other code can replay them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from aotlens.codegen.gpu.interpreter.records import RandomNumbersOfSeed


@dataclass(slots=True)
class RandomNumbers:
    """The random numbers of the running graph; mutable: each launch adds to them."""

    first_seed: int = 0
    seeds: int = 0
    _records: dict[int, list[tuple[str, Any, Any]]] = field(default_factory=dict)

    def start(self, first_seed: int) -> None:
        self.first_seed, self.seeds = first_seed, 0
        self._records.clear()

    def fill_seeds(self, seeds: torch.Tensor) -> None:
        """Fill a tensor with the next seeds."""
        start = self.first_seed + self.seeds
        seeds.copy_(torch.arange(start, start + seeds.numel()).view(seeds.shape))
        self.seeds += seeds.numel()

    def recording(self, kind: str, original: Any) -> Any:
        """Wrap a kernel's random function of seed and offsets, and record its numbers."""

        def generate(seed: Any, offsets: Any, *rest: Any) -> Any:
            result = original(seed, offsets, *rest)
            self._record(kind, seed, offsets, result.handle.data)
            return result

        return generate

    def _record(self, kind: str, seed: Any, offsets: Any, values: Any) -> None:
        shape = values.shape
        by_seed = np.broadcast_to(seed.handle.data, shape)
        positions = np.broadcast_to(offsets.handle.data, shape)
        for seed_value in np.unique(by_seed):
            chosen = by_seed == seed_value
            records = self._records.setdefault(int(seed_value) - self.first_seed, [])
            records.append((kind, positions[chosen].astype(np.int64), values[chosen].copy()))

    def by_seed(self) -> dict[int, RandomNumbersOfSeed]:
        """Return the recorded numbers by the index of the seed."""
        return {index: _merged(records) for index, records in self._records.items()}


def _merged(records: list[tuple[str, Any, Any]]) -> RandomNumbersOfSeed:
    kinds: Any = records[0][0]
    offsets = np.concatenate([positions for _, positions, _ in records])
    values = np.concatenate([values for _, _, values in records])
    unique, first, inverse = np.unique(offsets, return_index=True, return_inverse=True)
    first_values = values[first]
    return RandomNumbersOfSeed(
        kind=kinds,
        offsets=torch.from_numpy(unique),
        values=torch.from_numpy(first_values.copy()),
        repeats=len(offsets) - len(unique),
        agrees=bool(np.array_equal(first_values[inverse], values)),
    )
