"""The values that each policy saves: `default`, `min-cut` and `budget`, each with the user's overrides."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from aotlens.errors import UserError
from aotlens.ir.program import Node, has_effect
from aotlens.joint.records import Joint
from aotlens.partition.budget import BudgetSolution, Frontier, meet_budget
from aotlens.partition.min_cut import Network
from aotlens.partition.overrides import overridden_values
from aotlens.partition.problem import (
    InfeasibleError,
    Problem,
    Value,
    build_problem,
    recompute_path,
)
from aotlens.partition.rules import Decision, Reason, has_several_outputs, is_checkpointed, is_number
from aotlens.partition.sides import Sides
from aotlens.partition.storages import is_view, node_bytes, returned_storages, storage_root
from aotlens.partition.user_names import user_names
from aotlens.policy import Policy


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision of a policy."""

    saved: tuple[Node, ...]
    """The values that the forward saves, in program order."""
    why_saved: Callable[[Node], Reason]
    why_recomputed: Callable[[Node], Reason]
    problem: Problem | None = None
    """The problem that was solved; None for `default`, which solves none."""
    budget_solution: BudgetSolution | None = None
    """Set under the policy `budget`."""
    forced: Mapping[int, Decision] | None = None
    """The user's overrides, by identity."""


def choose_saved(joint: Joint, sides: Sides, policy: Policy) -> Choice:
    """Return the values that a policy saves.

    Raises:
        UserError: an override or a budget that cannot be met.
    """
    priced = policy.base == "budget"
    forced = _overrides(joint, sides, policy, priced)
    if policy.base == "default":
        return save_all_reads(joint, sides, forced)
    problem = build_problem(joint, sides, priced, forced)
    if priced:
        solution = _within_budget(problem, budget_bytes(joint, sides, policy), policy)
        choice = _solver_choice(joint, problem, solution.point.saved, Reason.BUDGET, forced)
        return replace(choice, budget_solution=solution)
    try:
        saved = Network(problem).solve()
    except InfeasibleError as error:
        raise UserError(_infeasible(error, policy), span=error.value.node.origin.location.innermost) from None
    return _solver_choice(joint, problem, saved, Reason.CHOICE, forced)


def _overrides(joint: Joint, sides: Sides, policy: Policy, priced: bool) -> dict[int, Decision]:
    if not policy.overrides and policy.function is None:
        return {}
    return overridden_values(joint, sides, policy, build_problem(joint, sides, priced), user_names(joint))


def save_all_reads(joint: Joint, sides: Sides, forced: Mapping[int, Decision] | None = None) -> Choice:
    """Save every forward value that the backward reads; sizes are saved as numbers."""
    forced = forced or {}
    sizes = {id(node) for node in joint.program.nodes if is_number(node)} - sides.backward
    read: set[int] = {id(out.value) for out in joint.gradients}
    for node in joint.program.nodes:
        if not sides.is_forward_value(node) and id(node) not in sizes:
            read.update(id(source) for source in node.inputs())
    recomputed: set[int] = set()
    for node in reversed(joint.program.nodes):
        is_saved = (
            id(node) in sides.checkpoint_outputs
            or sides.reads_mutated_input(node)
            or not is_checkpointed(node)
        )
        is_saved = (is_saved and (joint.may_save_views or not is_view(node))) or has_effect(node)
        is_saved = is_saved and forced.get(id(node)) is not Decision.RECOMPUTE
        if id(node) in read and not (is_saved or forced.get(id(node)) is Decision.SAVE):
            recomputed.add(id(node))
            read.update(id(source) for source in node.inputs())
    saved_ids = read - recomputed
    saved = tuple(
        node
        for node in joint.program.nodes
        if id(node) in saved_ids
        and (sides.is_forward_value(node) or id(node) in sizes)
        and not has_several_outputs(node)
    )

    def why_saved(node: Node) -> Reason:
        return Reason.USER if forced.get(id(node)) is Decision.SAVE else Reason.DEFAULT

    def why_recomputed(node: Node) -> Reason:
        if forced.get(id(node)) is Decision.RECOMPUTE:
            return Reason.USER
        return Reason.CHECKPOINT if is_checkpointed(node) else _recompute_reason(node, Reason.DEFAULT)

    return Choice(saved, why_saved, why_recomputed, forced=forced)


def _recompute_reason(node: Node, otherwise: Reason) -> Reason:
    if is_view(node):
        return Reason.VIEW
    return Reason.BUNDLE if has_several_outputs(node) else otherwise


def _solver_choice(
    joint: Joint, problem: Problem, saved: frozenset[int], free: Reason, forced: Mapping[int, Decision]
) -> Choice:
    """Turn a solver's answer into a `Choice`: a value's reason is a rule's, or `free` where the solver chose.

    No rule has decided about a value that the problem does not contain.
    """
    values = problem.by_identity()

    def why_saved(node: Node) -> Reason:
        value = values.get(id(node))
        return value.save if value is not None and value.save is not None else free

    def why_recomputed(node: Node) -> Reason:
        value = values.get(id(node))
        reason = value.recompute if value is not None else None
        return reason or _recompute_reason(node, Reason.CHEAPER if free is Reason.CHOICE else free)

    nodes = tuple(node for node in joint.program.nodes if id(node) in saved)
    return Choice(nodes, why_saved, why_recomputed, problem, forced=forced)


def _within_budget(problem: Problem, limit_bytes: int, policy: Policy) -> BudgetSolution:
    try:
        return meet_budget(problem, limit_bytes)
    except InfeasibleError:
        if policy.budget is None or policy.budget.fraction is None:
            raise UserError(_too_small(problem, limit_bytes)) from None
        # A fraction is for all graphs of a program, and some of them save only what they must.
        least = Frontier(problem).least_bytes
        return replace(meet_budget(problem, least.size_bytes), budget_bytes=limit_bytes)


def budget_bytes(joint: Joint, sides: Sides, policy: Policy) -> int:
    """Return the budget in bytes; a fraction is relative to what `default` would save."""
    budget = policy.budget
    assert budget is not None  # set by Policy.parse
    if budget.size_bytes is not None:
        return budget.size_bytes
    return int((budget.fraction or 0.0) * added_bytes(joint, save_all_reads(joint, sides).saved))


def added_bytes(joint: Joint, saved: tuple[Node, ...]) -> int:
    """Return the memory that saved values add: each storage once, without those of inputs and outputs."""
    return sum(node_bytes(root) for root in added_storages(joint, saved))


def added_storages(joint: Joint, saved: tuple[Node, ...]) -> Iterator[Node]:
    """Yield the values whose storage only the backward keeps alive."""
    counted = returned_storages(joint) | {id(item.node) for item in joint.program.inputs}
    for node in saved:
        root = storage_root(node)
        if id(root) not in counted and root.constant is None:
            counted.add(id(root))
            yield root


def _infeasible(error: InfeasibleError, policy: Policy) -> str:
    return (
        f"under the policy `{policy}` the backward cannot read `{error.value.node.name}`: it can neither be"
        " saved nor recomputed"
    )


def _too_small(problem: Problem, limit: int) -> str:
    least = Frontier(problem).least_bytes
    values = sorted(
        (value for value in problem.values if id(value.node) in least.saved and value.size_bytes),
        key=lambda value: -value.size_bytes,
    )
    known = problem.by_identity()
    rows = [
        f"`{value.node.name}` {value.size_bytes:,} bytes ({_obstacle(known, value, least.saved)})"
        for value in values[:3]
    ]
    more = f", and {len(values) - 3} more" if len(values) > 3 else ""
    return (
        f"the memory budget of {limit:,} bytes is below {least.size_bytes:,} bytes, which every choice must"
        f" save: {', '.join(rows)}{more}; use at least {least.size_bytes}"
    )


def _obstacle(known: Mapping[int, Value], value: Value, saved: frozenset[int]) -> str:
    """Explain why a value is saved under every budget."""
    if value.save is not None:
        return value.save.text
    path = recompute_path(known, value.node, saved)
    if path and path[0].save is not None:  # set for the first value of every path
        return f"it is computed from `{path[0].node.name}`: {path[0].save.text}"
    return Reason.BUDGET.text
