"""Explain why the solver saves a value: what prevents recomputing it, what needs it, and the price of not
saving it.

Invariant: a price is the difference between two solved problems. Under a budget both are the frontier's
bounds at the budget, so the price is in work and no choice avoids it.
"""

from dataclasses import dataclass, replace

from aotlens.ir.program import Node
from aotlens.partition.budget import Frontier, FrontierPoint, point_of
from aotlens.partition.flops import node_flops
from aotlens.partition.min_cut import Network
from aotlens.partition.policies import Choice
from aotlens.partition.problem import InfeasibleError, Problem, recompute_path
from aotlens.partition.records import Split
from aotlens.partition.rules import Freedom, Reason

OWN_PRICES = 128
"""Up to this many choices are priced one by one; beyond, one value of a source line represents all its
layers."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why the solver saves a value."""

    above: Node | None
    """The operand that recomputing would need and the backward cannot have: not saved, and costly or
    impossible to recompute."""
    above_reason: Reason | None
    path: tuple[Node, ...]
    """The path from `above` to the value."""
    below: Node | None
    """A backward node that reads the value, or something recomputed from it."""
    instead: tuple[Node, ...]
    """The values that the next cheapest choice would save instead."""
    price_bytes: int | None
    """How much more that choice saves; None when the backward needs the value in every choice."""
    price_flops: int
    same_as: Node | None = None
    """The value of an identical layer whose price is reported; None when this value has its own."""


def certificates(split: Split) -> dict[int, Certificate]:
    """Return a certificate for each saved value that the solver chose, by identity."""
    problem = split.choice.problem
    if problem is None:
        return {}
    values = problem.by_identity()
    chosen = [
        node
        for node in split.saved
        if split.choice.why_saved(node).freedom is Freedom.CHOICE
        and id(node) in values
        and values[id(node)].save is None
    ]
    graph = _Graph(split, problem)
    price = _Prices(problem, split.choice)
    representatives: dict[object, Node] = {}
    by_identity: dict[int, Certificate] = {}
    for node in chosen:
        key = (node.target, node.origin.location.spans[:1], values[id(node)].size_bytes)
        first = node if len(chosen) <= OWN_PRICES else representatives.setdefault(key, node)
        if first is not node:
            known = by_identity[id(first)]
            prices = (), known.price_bytes, known.price_flops
            by_identity[id(node)] = Certificate(*graph.above(node), graph.below(node), *prices, first)
            continue
        by_identity[id(node)] = Certificate(*graph.above(node), graph.below(node), *price.without(node))
    return by_identity


class _Prices:
    """Prices of the next cheapest choice without one value."""

    def __init__(self, problem: Problem, choice: Choice) -> None:
        self._problem = problem
        self._budget = choice.budget_solution.limit_bytes if choice.budget_solution is not None else None
        if self._budget is None:
            self._network = Network(problem)  # shared by all prices: only a capacity changes
            self._current = point_of(problem, self._network.solve())
        else:
            self._current, self._bound = Frontier(problem).within(self._budget)

    def without(self, node: Node) -> tuple[tuple[Node, ...], int | None, int]:
        """Return what would be saved instead, the additional bytes, and the additional work."""
        try:
            if self._budget is None:
                other = point_of(self._problem, self._network.solve(without=id(node)))
                more = other.size_bytes - self._current.size_bytes
                return self._instead(other), more, self._flops(other) - self._flops(self._current)
            other, bound = Frontier(_forbidding(self._problem, id(node))).within(self._budget)
        except InfeasibleError:
            return (), None, 0
        return self._instead(other), 0, max(0, bound - self._bound)

    def _flops(self, point: FrontierPoint) -> int:
        return sum(node_flops(value.node) for value in self._problem.recomputed(point.saved))

    def _instead(self, other: FrontierPoint) -> tuple[Node, ...]:
        new = other.saved - self._current.saved
        return tuple(
            value.node for value in self._problem.values if id(value.node) in new and value.size_bytes
        )


def _forbidding(problem: Problem, identity: int) -> Problem:
    """Return the problem with one value that may not be saved."""
    values = tuple(
        replace(value, recompute=Reason.USER) if id(value.node) == identity else value
        for value in problem.values
    )
    return Problem(values, problem.read)


class _Graph:
    """Paths up to what prevents recomputing a value, and down to what needs it."""

    def __init__(self, split: Split, problem: Problem) -> None:
        self._values = problem.by_identity()
        self._saved = frozenset(map(id, split.saved))
        self._recomputed = {id(value.node) for value in problem.recomputed(self._saved)}
        self._backward = split.sides.backward
        self._users: dict[int, list[Node]] = {}
        for node in split.backward_nodes:
            for source in dict.fromkeys(map(id, node.inputs())):
                self._users.setdefault(source, []).append(node)

    def above(self, node: Node) -> tuple[Node | None, Reason | None, tuple[Node, ...]]:
        """Return the nearest value above that is neither available nor recomputable, its reason, and the path
        from it."""
        path = recompute_path(self._values, node, self._saved)
        if not path:
            return None, None, (node,)
        return path[0].node, path[0].save, tuple(value.node for value in path)

    def below(self, node: Node) -> Node | None:
        """Return the first backward node that reads the value, or something recomputed from it."""
        queue: list[Node] = [node]
        seen = {id(node)}
        for source in queue:
            for user in self._users.get(id(source), ()):
                if id(user) in self._backward:
                    return user
                if id(user) not in seen and id(user) in self._recomputed:
                    seen.add(id(user))
                    queue.append(user)
        return None
