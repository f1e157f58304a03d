"""Meet a memory budget exactly, by integer programming over the values (OR-tools CP-SAT).

Each value is available in the backward or not, and recomputed or not; a value that is available but not
recomputed is saved. The search is deterministic: one thread, a fixed seed, and a limit that is not measured
in time.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from aotlens.partition.problem import Problem, Value

EFFORT = 8.0
"""CP-SAT's deterministic time limit, roughly in seconds."""
PROVEN_TO_THE_END = 1200
"""In problems with more values the search ends as soon as the choice is within `GAP` of the optimum."""
GAP = 0.003


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
    """The integer program of a problem; a value without a choice has a constant instead of a variable."""

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
