"""The cheapest set of forward values from which the backward can compute all that it needs.

A minimum cut of a network in which each value that may be saved is an arc of its bytes; max-flow by OR-tools
(push-relabel, 64-bit capacities).  Arcs that may not be cut are contracted where that loses nothing, and
infinite elsewhere.  Of all minimum cuts the one nearest to the backward is taken, since it computes the
least again.
"""

from collections.abc import Mapping

import numpy as np

from aotlens.partition.problem import InfeasibleError, Problem, Value

INFINITE = 1 << 60
FREE = 1
"""What a value that costs nothing counts in the cut: an arc of 0 would not be an arc at all."""

_SOURCE, _SINK = 0, 1


class Network:
    """The flow network of a problem.

    A value has a vertex where it begins to be known (all that it is computed from is at hand) and one where
    it is at hand.  Both are one vertex when it may not be saved; the first is the source when it may not be
    computed again, and the vertex of what it is computed from when that is one value and the work is free;
    the second is the sink when the backward cannot do without it.
    """

    def __init__(self, problem: Problem, work: Mapping[int, float] | None = None) -> None:
        """`work` is what computing a value again costs, by identity; without it work is free."""
        self._problem = problem
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._sizes: list[int] = []
        self._works: list[float] = []
        """By arc: what it costs for work; 0 for an arc of bytes."""
        self._arcs: dict[int, tuple[int, int, int]] = {}
        """By identity: the arc of a value that may be saved, and its two vertices."""
        self._count = 2
        needed = _needed(problem)
        end_vertices: dict[int, int] = {}
        for value in problem.values:
            begins = self._begin(value, end_vertices, (work or {}).get(id(value.node), 0.0))
            end_vertices[id(value.node)] = self._end(value, begins, id(value.node) in needed)
        self._ends = (np.array(self._tails, dtype=np.int32), np.array(self._heads, dtype=np.int32))
        self._bytes = np.array(self._sizes, dtype=np.int64)
        self._work = np.array(self._works, dtype=np.float64)

    def _begin(self, value: Value, end_vertices: dict[int, int], work: float) -> int:
        if value.save is not None:
            return _SOURCE
        vertices = dict.fromkeys(end_vertices[source] for source in value.sources if source in end_vertices)
        sources = [vertex for vertex in vertices if vertex != _SINK]
        if len(sources) == 1 and not work:
            return sources[0]
        begins = self._vertex()
        for vertex in sources:
            self._arc(vertex, begins, INFINITE)
        if work:
            self._arc(_SOURCE, begins, 0, work)
        return begins

    def _end(self, value: Value, begins: int, needed: bool) -> int:
        if value.recompute is not None:
            if needed and begins == _SOURCE:
                raise InfeasibleError(value)
            return begins
        ends = _SINK if needed else self._vertex()
        self._arcs[id(value.node)] = len(self._tails), begins, ends
        self._arc(begins, ends, max(value.size_bytes, FREE))
        return ends

    def _vertex(self) -> int:
        self._count += 1
        return self._count - 1

    def _arc(self, tail: int, head: int, size: int, work: float = 0.0) -> None:
        self._tails.append(tail)
        self._heads.append(head)
        self._sizes.append(size)
        self._works.append(work)

    def solve(self, without: int | None = None) -> frozenset[int]:
        """Identities of the values that the cheapest cut saves; the value `without` may not be one of them.

        Raises:
            InfeasibleError: no cut is finite.
        """
        capacities = self._bytes
        if without is not None:
            capacities = capacities.copy()
            capacities[self._arcs[without][0]] = INFINITE
        return self._cut(capacities)

    def solve_priced(self, byte_price: float, work_price: float) -> frozenset[int]:
        """The same when bytes and work have these prices."""
        finite = self._bytes < INFINITE
        costs = byte_price * np.where(finite, self._bytes, 0) + work_price * self._work
        scale = (1 << 52) / max(float(costs.sum()), 1.0)
        capacities = np.where(finite, np.maximum(np.rint(costs * scale).astype(np.int64), FREE), INFINITE)
        return self._cut(capacities)

    def _cut(self, capacities: np.ndarray) -> frozenset[int]:
        from ortools.graph.python import max_flow  # compiled, 0.1 s to import: only when something is trained

        if not self._tails:
            return frozenset()
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(*self._ends, capacities)
        if flow.num_nodes() <= _SINK:
            return frozenset()
        if flow.solve(_SOURCE, _SINK) != flow.OPTIMAL or flow.optimal_flow() >= INFINITE:
            raise InfeasibleError(self._problem.values[-1])
        sink_side = np.zeros(self._count, dtype=bool)
        sink_side[flow.get_sink_side_min_cut()] = True
        return frozenset(
            identity
            for identity, (_, begins, ends) in self._arcs.items()
            if sink_side[ends] and not sink_side[begins]
        )


def _needed(problem: Problem) -> set[int]:
    """The values that the backward reads, or has to compute what it reads from."""
    needed = set(problem.read)
    for value in reversed(problem.values):
        if id(value.node) in needed and value.recompute is not None:
            needed.update(value.sources)
    return needed
