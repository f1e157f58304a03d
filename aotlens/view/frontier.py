"""The frontier between saved bytes and work done again, cut to what a person reads.

Invariant: standard library only; what was compiled is always among the rows, marked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aotlens.model.partition import OwnChoice
from aotlens.model.report import FrontierPoint, Partition


@dataclass(frozen=True, slots=True)
class FrontierRow:
    """One choice on the frontier, or the one that was compiled."""

    saved_bytes: int
    recompute_flops: int
    chosen: bool


def chosen_point(partition: Partition) -> FrontierPoint:
    """What the compiled choice costs."""
    return FrontierPoint(partition.saved_bytes, sum(value.flops for value in partition.recomputed))


def frontier_rows(partition: Partition, most: int) -> tuple[FrontierRow, ...]:
    """At most so many rows, the fewest bytes first: both ends, what was compiled, and others between them."""
    if not partition.frontier:
        return ()
    chosen = chosen_point(partition)
    points = sorted({*partition.frontier, chosen}, key=lambda one: (one.saved_bytes, one.recompute_flops))
    kept = _spread(points, {0, len(points) - 1, points.index(chosen)}, most)
    return tuple(FrontierRow(one.saved_bytes, one.recompute_flops, one == chosen) for one in kept)


def _spread(points: Sequence[FrontierPoint], must: set[int], most: int) -> list[FrontierPoint]:
    """The points of `must`, then those farthest in bytes from what is there."""
    kept = set(must)
    while len(kept) < min(most, len(points)):
        rest = (at for at in range(len(points)) if at not in kept)
        kept.add(max(rest, key=lambda at: min(_apart(points[at], points[other]) for other in kept)))
    return [points[at] for at in sorted(kept)]


def _apart(one: FrontierPoint, other: FrontierPoint) -> int:
    return abs(one.saved_bytes - other.saved_bytes)


def of_own(own: OwnChoice) -> str:
    """What a what-if of a log is compared with."""
    return f"our solver's choice under {own.policy}, not torch's"
