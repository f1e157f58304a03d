"""The cheapest set of forward values from which the backward can compute everything that it needs.

A minimum cut of a network in which each value that may be saved is an arc with its bytes as capacity; maximum
flow by OR-tools (push-relabel, 64-bit capacities). Arcs that may not be cut are contracted where that is
equivalent, and infinite elsewhere. Of all minimum cuts the one nearest to the backward is used, since it
recomputes the least.
"""

from collections.abc import Mapping

import numpy as np

from aotlens.partition.problem import InfeasibleError, Problem, Value, needed_values

INFINITE = 1 << 60
FREE = 1
"""The capacity of a value that costs nothing: an arc of capacity 0 would not exist."""

_SOURCE, _SINK = 0, 1


class Network:
    """The flow network of a problem.

    A value has a begin vertex (its operands are available) and an end vertex (the value is available). Both
    are the same vertex when the value may not be saved. The begin vertex is the source when the value may not
    be recomputed, and the operand's end vertex when there is one operand and work is free. The end vertex is
    the sink when the backward needs the value. Where work has a price, an arc from the source to the begin
    vertex is cut if the value is recomputed; only `solve_priced` gives it a capacity.
    """

    def __init__(self, problem: Problem, work: Mapping[int, float] | None = None) -> None:
        """`work` is the cost of recomputing a value, by identity; without it work is free."""
        self._problem = problem
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._sizes: list[int] = []
        self._works: list[float] = []
        """By arc: what it costs for work; 0 for an arc of bytes."""
        self._arcs: dict[int, tuple[int, int, int]] = {}
        """By identity: the arc of a value that may be saved, and its two vertices."""
        self._count = 2
        needed = needed_values(problem.values, problem.read, lambda value: value.recompute is not None)
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
        """Return the identities of the values that the cheapest cut saves; `without` may not be one of them.

        Raises:
            InfeasibleError: no cut is finite.
        """
        capacities = self._bytes
        if without is not None:
            capacities = capacities.copy()
            capacities[self._arcs[without][0]] = INFINITE
        return self._cut(capacities)

    def solve_priced(self, byte_price: float, work_price: float) -> frozenset[int]:
        """Return the same under these prices of bytes and work."""
        finite = self._bytes < INFINITE
        costs = byte_price * np.where(finite, self._bytes, 0) + work_price * self._work
        scale = (1 << 52) / max(float(costs.sum()), 1.0)
        capacities = np.where(finite, np.maximum(np.rint(costs * scale).astype(np.int64), FREE), INFINITE)
        return self._cut(capacities)

    def _cut(self, capacities: np.ndarray) -> frozenset[int]:
        from ortools.graph.python import max_flow  # compiled, 0.1 s to import: only when something is trained

        if not self._tails:  # no value may be saved, so there is nothing to cut
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
