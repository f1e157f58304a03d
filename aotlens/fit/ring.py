"""Predict how long a collective takes on a ring of ranks.  Stdlib only.

Invariant: only bandwidth counts. Latency, the start of kernels, and overlap with computation are left out.
"""

from collections.abc import Callable

__all__ = ["ring_seconds"]

_SHARES: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "gather": lambda ranks: (ranks - 1) / ranks,
    "scatter": lambda ranks: (ranks - 1) / ranks,
}
"""By the first words of the name: the share of the full buffer that each rank sends."""


def ring_seconds(op: str, full_bytes: int, ranks: int, bandwidth_gb_per_s: float) -> float:
    """Return the seconds for a buffer of that size in full, which every other operator sends once.

    `bandwidth_gb_per_s` is what a rank sends to its neighbour, in 10^9 bytes a second.
    """
    if ranks < 2:
        return 0.0
    share = next((share for name, share in _SHARES.items() if op.startswith(name)), lambda ranks: 1.0)
    return share(ranks) * full_bytes / (bandwidth_gb_per_s * 1e9)
