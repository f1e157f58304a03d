"""The least work that fits a memory budget, and the frontier between bytes and work.

The frontier comes from minimum cuts under a price for bytes and one for work: each is the cheapest choice
for its bytes (a point of the lower hull).  Between two points of the hull a budget is met exactly by integer
programming (OR-tools CP-SAT) while the problem is small enough; beyond that by the next point of the hull,
with the distance to the hull, which no choice beats, as the gap.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aotlens.partition.exact import solve_exactly
from aotlens.partition.min_cut import Cut, Network, saved_bytes
from aotlens.partition.problem import InfeasibleError, Problem

FRONTIER_POINTS = 32
EXACT_VALUES = 6000
"""Problems with more values than this are left to the hull."""
_NUDGE = 1e-4
"""How far equal layers are told apart, so that the hull has a point for each of them."""


@dataclass(frozen=True, slots=True)
class Point:
    """One choice of saved values."""

    saved: frozenset[int]
    size_bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Met:
    """How a budget was met."""

    point: Point
    asked_bytes: int
    bound_flops: int
    """No choice within the budget computes less again."""
    exact: bool
    method: str


def point_of(problem: Problem, cut: Cut) -> Point:
    """A cut without what nobody needs, and its work."""
    again = problem.recomputed(cut.saved)
    needed = problem.read.union(*(value.sources for value in again))
    saved = cut.saved & needed
    return Point(saved, saved_bytes(problem.values, saved), sum(value.flops for value in again))


class Frontier:
    """The lower hull of (bytes, work) over all choices, refined on demand."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._network = Network(problem, priced=True)
        ranks = np.linspace(0.0, _NUDGE, num=len(self._network.work))
        self._work = self._network.work * (1 + ranks)
        total = max(float(self._work.sum()), 1.0)
        weight = float(sum(value.size_bytes for value in problem.values)) or 1.0
        self.least_bytes = self._solve(1.0, 1e-9 * weight / total)
        """The fewest bytes that any choice saves."""
        self.least_work = self._solve(1e-9 * total / weight, 1.0)
        """The least work, with the fewest bytes that need no more."""

    def points(self, count: int = FRONTIER_POINTS) -> tuple[Point, ...]:
        """Up to `count` points, the fewest bytes first; the widest gap between two is refined first."""
        found = {self.least_bytes.size_bytes: self.least_bytes, self.least_work.size_bytes: self.least_work}
        gaps = [self._gap(self.least_bytes, self.least_work)]
        while gaps and len(found) < count:
            _, _, low, high = heapq.heappop(gaps)
            between = self._between(low, high)
            if between is None or between.size_bytes in found:
                continue
            found[between.size_bytes] = between
            heapq.heappush(gaps, self._gap(low, between))
            heapq.heappush(gaps, self._gap(between, high))
        return _undominated(found.values())

    def meet(self, budget_bytes: int) -> tuple[Point, Point | None]:
        """The two neighbours on the hull: one within the budget, and the next beyond it (None at the end).

        Raises:
            InfeasibleError: even the fewest bytes are more than the budget.
        """
        low, high = self.least_bytes, self.least_work
        if low.size_bytes > budget_bytes:
            raise InfeasibleError(self._problem.values[-1])
        if high.size_bytes <= budget_bytes:
            return high, None
        while True:
            between = self._between(low, high)
            if between is None or between.size_bytes in (low.size_bytes, high.size_bytes):
                return low, high
            if between.size_bytes <= budget_bytes:
                low = between
            else:
                high = between

    def _gap(self, low: Point, high: Point) -> tuple[float, int, Point, Point]:
        return (-(high.size_bytes - low.size_bytes) * 1.0, low.size_bytes, low, high)

    def _between(self, low: Point, high: Point) -> Point | None:
        """A point below the line through two others; None when there is none."""
        spared, work = high.size_bytes - low.size_bytes, low.flops - high.flops
        if spared <= 0 or work <= 0:
            return None
        found = self._solve(float(work), float(spared))
        below = work * (high.size_bytes - found.size_bytes) + spared * (high.flops - found.flops)
        outside = not low.size_bytes < found.size_bytes < high.size_bytes
        return None if outside or below < -_NUDGE * work * spared else found

    def _solve(self, byte_price: float, flop_price: float) -> Point:
        return point_of(self._problem, self._network.solve_priced(byte_price, flop_price, self._work))


def _undominated(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points of which no other saves as little and computes less again, the fewest bytes first."""
    found: list[Point] = []
    for point in sorted(points, key=lambda one: (one.size_bytes, one.flops)):
        if not found or point.flops < found[-1].flops:
            found.append(point)
    return tuple(found)


def meet_budget(problem: Problem, budget_bytes: int) -> Met:
    """The cheapest recomputation that saves at most the budget.

    Raises:
        InfeasibleError: even the fewest bytes are more than the budget.
    """
    within, beyond = Frontier(problem).meet(budget_bytes)
    if beyond is None:
        return Met(within, budget_bytes, within.flops, True, "everything that is dear to compute fits")
    share = (budget_bytes - within.size_bytes) / (beyond.size_bytes - within.size_bytes)
    bound = max(0, int(within.flops - share * (within.flops - beyond.flops) * (1 + _NUDGE)))
    if len(problem.values) > EXACT_VALUES:
        return Met(within, budget_bytes, bound, False, "the next point of the frontier")
    proven = solve_exactly(problem, budget_bytes, within.saved)
    if proven is None:
        return Met(within, budget_bytes, bound, False, "the next point of the frontier")
    point = point_of(problem, Cut(proven.saved, saved_bytes(problem.values, proven.saved)))
    if proven.optimal:
        return Met(point, budget_bytes, point.flops, True, "integer programming")
    best = min(point, within, key=lambda one: one.flops)
    return Met(
        best, budget_bytes, max(bound, proven.bound_flops), False, "integer programming, stopped early"
    )
