"""The cheapest recomputation within a memory budget, and the frontier between saved bytes and recomputed
work.

Minimum cuts under a price for bytes and one for work give the points of the lower convex hull. Between two of
these points, integer programming (OR-tools CP-SAT) meets a budget exactly while the problem is small enough;
larger problems take the next point, and the gap is the distance to the hull, which no choice beats.  The
search is deterministic: one thread, a fixed seed, and a limit that is not measured in time.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from aotlens.partition.min_cut import Network
from aotlens.partition.problem import InfeasibleError, Problem, Value

FRONTIER_POINTS = 32
EXACT_VALUES = 6000
"""Problems with more values than this take the next point of the hull."""
_NUDGE = 1e-4
"""How much the costs of identical layers are made to differ, so that the hull has a point for each layer."""
EFFORT = 8.0
"""CP-SAT's deterministic time limit, roughly in seconds."""
PROVEN_TO_THE_END = 1200
"""In problems with more values the search ends as soon as the choice is within `GAP` of the optimum."""
GAP = 0.003


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A choice of saved values."""

    saved: frozenset[int]
    size_bytes: int
    flops: int
    work: float = 0.0
    """The FLOPs with the costs of identical layers made to differ."""


@dataclass(frozen=True, slots=True)
class BudgetSolution:
    """How a budget is met."""

    point: FrontierPoint
    budget_bytes: int
    bound_flops: int
    """No choice within the budget recomputes less."""
    exact: bool
    method: str

    @property
    def limit_bytes(self) -> int:
        """Return the budget, or what every choice saves if that is more."""
        return max(self.budget_bytes, self.point.size_bytes)


def point_of(problem: Problem, saved_ids: frozenset[int]) -> FrontierPoint:
    """Return a choice without the values that are not needed, with its bytes and work."""
    recomputed = problem.recomputed(saved_ids)
    needed = problem.read.union(*(value.sources for value in recomputed))
    saved = saved_ids & needed
    size = sum(value.size_bytes for value in problem.values if id(value.node) in saved)
    return FrontierPoint(saved, size, sum(value.flops for value in recomputed))


class Frontier:
    """The lower hull of (bytes, work) over all choices, refined on demand."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        ranks = np.linspace(-_NUDGE, _NUDGE, num=len(problem.values))
        self._work = {
            id(value.node): value.flops * (1 + float(rank))
            for value, rank in zip(problem.values, ranks, strict=True)
            if value.flops
        }
        self._network = Network(problem, self._work)
        total = max(sum(self._work.values()), 1.0)
        weight = float(sum(value.size_bytes for value in problem.values)) or 1.0
        self.least_bytes = self._solve(1.0, 1e-9 * weight / total)
        """The choice that saves the fewest bytes."""
        self.least_work = self._solve(1e-9 * total / weight, 1.0)
        """The choice that recomputes the least, and of those the one that saves the fewest bytes."""

    def points(self, count: int = FRONTIER_POINTS) -> tuple[FrontierPoint, ...]:
        """Return up to `count` points, the fewest bytes first; the widest gap between two is refined
        first."""
        by_bytes = {
            self.least_bytes.size_bytes: self.least_bytes,
            self.least_work.size_bytes: self.least_work,
        }
        gaps = [_gap(self.least_bytes, self.least_work)]
        while gaps and len(by_bytes) < count:
            _, _, low, high = heapq.heappop(gaps)
            between = self._between(low, high)
            if between is None or between.size_bytes in by_bytes:
                continue
            by_bytes[between.size_bytes] = between
            heapq.heappush(gaps, _gap(low, between))
            heapq.heappush(gaps, _gap(between, high))
        return _undominated(by_bytes.values())

    def within(self, budget_bytes: int) -> tuple[FrontierPoint, int]:
        """Return the cheapest hull point within the budget, and a lower bound on the work of any choice
        within it.

        Raises:
            InfeasibleError: even the fewest bytes are more than the budget.
        """
        within, beyond = self.least_bytes, self.least_work
        if within.size_bytes > budget_bytes:
            raise InfeasibleError(self._problem.values[-1])
        if beyond.size_bytes <= budget_bytes:
            return beyond, beyond.flops
        while (between := self._between(within, beyond)) is not None:
            if between.size_bytes <= budget_bytes:
                within = between
            else:
                beyond = between
        share = (budget_bytes - within.size_bytes) / (beyond.size_bytes - within.size_bytes)
        return within, max(0, int(within.flops - share * (within.flops - beyond.flops) * (1 + _NUDGE)))

    def _between(self, low: FrontierPoint, high: FrontierPoint) -> FrontierPoint | None:
        """Return a point below the line through two others; None if there is none."""
        bytes_apart, work = high.size_bytes - low.size_bytes, low.work - high.work
        if bytes_apart <= 0 or work <= 0:
            return None
        point = self._solve(work, float(bytes_apart))
        return point if low.size_bytes < point.size_bytes < high.size_bytes else None

    def _solve(self, byte_price: float, work_price: float) -> FrontierPoint:
        point = point_of(self._problem, self._network.solve_priced(byte_price, work_price))
        work = sum(self._work.get(id(value.node), 0.0) for value in self._problem.recomputed(point.saved))
        return replace(point, work=work)


def _gap(low: FrontierPoint, high: FrontierPoint) -> tuple[int, int, FrontierPoint, FrontierPoint]:
    """Return an entry of the heap of gaps: the widest first."""
    return low.size_bytes - high.size_bytes, low.size_bytes, low, high


def _undominated(points: Iterable[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """Return the points that no other beats in both bytes and work, the fewest bytes first."""
    frontier: list[FrontierPoint] = []
    for point in sorted(points, key=lambda candidate: (candidate.size_bytes, candidate.flops)):
        if not frontier or point.flops < frontier[-1].flops:
            frontier.append(point)
    return tuple(frontier)


def meet_budget(problem: Problem, budget_bytes: int) -> BudgetSolution:
    """Return the choice that recomputes the least while it saves at most the budget.

    Raises:
        InfeasibleError: even the fewest bytes are more than the budget.
    """
    within, bound = Frontier(problem).within(budget_bytes)
    if bound == within.flops:
        return BudgetSolution(within, budget_bytes, bound, True, "a point of the frontier")
    is_small = len(problem.values) <= EXACT_VALUES
    proven = solve_exactly(problem, budget_bytes, within.saved) if is_small else None
    if proven is None:
        return BudgetSolution(within, budget_bytes, bound, False, "the next point of the frontier")
    point = point_of(problem, proven.saved)
    if proven.optimal:
        return BudgetSolution(point, budget_bytes, point.flops, True, "integer programming")
    best = min(point, within, key=lambda candidate: candidate.flops)
    return BudgetSolution(
        best, budget_bytes, max(bound, proven.bound_flops), False, "integer programming, stopped early"
    )


@dataclass(frozen=True, slots=True)
class Proven:
    """The result of the search."""

    saved: frozenset[int]
    """Identities of the values to save; some of them may not be needed."""
    optimal: bool
    bound_flops: int


def solve_exactly(problem: Problem, budget_bytes: int, start: frozenset[int]) -> Proven | None:
    """Return the least work within the budget, starting from a valid choice; None when the search found
    nothing in time."""
    from ortools.sat.python import cp_model  # 0.4 s to import, and only a budget needs it

    program = _Program(cp_model.CpModel(), problem, start)
    program.limit(budget_bytes)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2  # the relaxation is nearly a minimum cut, so its bound is tight
    solver.parameters.symmetry_level = 4  # identical layers
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = EFFORT
    if len(problem.values) > PROVEN_TO_THE_END:
        solver.parameters.relative_gap_limit = GAP
    status = solver.solve(program.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    bound = ceil(solver.best_objective_bound)
    return Proven(program.saved(solver), bound >= solver.objective_value, bound)


class _Program:
    """The integer program of a problem: each value is available in the backward or not, recomputed or not.

    A value that is available but not recomputed is saved.  One without a choice has a constant instead of a
    variable.
    """

    def __init__(self, model: Any, problem: Problem, start: frozenset[int]) -> None:
        self.model = model
        self._problem, self._start = problem, start
        self._computed = {id(value.node) for value in problem.recomputed(start)}
        self._available: dict[int, Any] = {}
        self._recomputed: dict[int, Any] = {}
        for value in problem.values:
            self._add(value)

    def _add(self, value: Value) -> None:
        """Add whether a value is available and recomputed, and what that requires of its sources."""
        identity = id(value.node)
        lost = value.save is not None and value.recompute is not None
        needed = identity in self._problem.read
        available = 0 if lost else 1 if needed else self._variable(identity in self._computed | self._start)
        recompute = 0
        if value.save is None:
            recompute = (
                available if value.recompute is not None else self._variable(identity in self._computed)
            )
        self._available[identity], self._recomputed[identity] = available, recompute
        if recompute is not available and not isinstance(recompute, int):
            self.model.add(recompute <= available)
        for source in value.sources:
            if source in self._available and not (isinstance(recompute, int) and recompute == 0):
                self.model.add(self._available[source] >= recompute)

    def _variable(self, hint: bool) -> Any:
        variable = self.model.new_bool_var("")
        self.model.add_hint(variable, hint)
        return variable

    def limit(self, budget_bytes: int) -> None:
        """Limit the saved bytes to the budget, and minimise the recomputed work."""
        sizes = [value.size_bytes for value in self._problem.values if value.size_bytes]
        unit = int(np.gcd.reduce(np.array(sizes, dtype=np.int64))) if sizes else 1
        saved = sum(
            value.size_bytes // unit * (self._available[id(value.node)] - self._recomputed[id(value.node)])
            for value in self._problem.values
            if value.size_bytes
        )
        self.model.add(saved <= budget_bytes // unit)
        self.model.minimize(
            sum(
                value.flops * self._recomputed[id(value.node)]
                for value in self._problem.values
                if value.flops
            )
        )

    def saved(self, solver: Any) -> frozenset[int]:
        return frozenset(
            id(value.node)
            for value in self._problem.values
            if _chosen(solver, self._available[id(value.node)])
            and not _chosen(solver, self._recomputed[id(value.node)])
        )


def _chosen(solver: Any, variable: Any) -> bool:
    return bool(variable) if isinstance(variable, int) else bool(solver.value(variable))
