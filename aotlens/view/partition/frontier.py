"""The frontier between saved bytes and recomputation, shortened for display.

Invariant: standard library only; the compiled choice is always among the rows, marked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aotlens.model.report import FrontierPoint, Partition


@dataclass(frozen=True, slots=True)
class FrontierRow:
    """One choice on the frontier, or the one that was compiled."""

    saved_bytes: int
    recompute_flops: int
    chosen: bool


def chosen_point(partition: Partition) -> FrontierPoint:
    """Return the saved bytes and the recomputation of the compiled choice."""
    return FrontierPoint(partition.saved_bytes, sum(value.flops for value in partition.recomputed))


def frontier_rows(partition: Partition, most: int) -> tuple[FrontierRow, ...]:
    """Return at most `most` rows, the fewest bytes first: both ends, the compiled choice, and others between
    them."""
    if not partition.frontier:
        return ()
    chosen = chosen_point(partition)
    points = sorted(
        {*partition.frontier, chosen}, key=lambda point: (point.saved_bytes, point.recompute_flops)
    )
    shown = _spread(points, {0, len(points) - 1, points.index(chosen)}, most)
    return tuple(FrontierRow(point.saved_bytes, point.recompute_flops, point == chosen) for point in shown)


def _spread(points: Sequence[FrontierPoint], must: set[int], most: int) -> list[FrontierPoint]:
    """Return the points of `must`, then those farthest in bytes from the chosen ones."""
    chosen = set(must)
    while len(chosen) < min(most, len(points)):
        rest = (index for index in range(len(points)) if index not in chosen)
        chosen.add(max(rest, key=lambda index: min(_apart(points[index], points[other]) for other in chosen)))
    return [points[index] for index in sorted(chosen)]


def _apart(first: FrontierPoint, second: FrontierPoint) -> int:
    return abs(first.saved_bytes - second.saved_bytes)
