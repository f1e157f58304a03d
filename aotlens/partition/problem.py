"""The choice of a partition policy as data: what saving and recomputing each value cost, and which values are
fixed.

Invariant: costs are counted by storage. Saving costs nothing where somebody else keeps the storage anyway: a
parameter, or an argument or output that eager's backward saves too. A view is never saved but regenerated
from its base. An argument or output that eager's backward does not save is not saved either, because eager
allows the caller to write to it before the backward.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aotlens.ir.origin import CheckpointMark
from aotlens.ir.program import Node
from aotlens.ir.slots import Buffer, Parameter
from aotlens.joint.records import Joint
from aotlens.partition.flops import has_price, node_flops
from aotlens.partition.rules import (
    Decision,
    Freedom,
    Reason,
    choose,
    has_several_outputs,
    is_checkpointed,
    is_effect,
    is_number,
    is_random,
)
from aotlens.partition.sides import Sides
from aotlens.partition.storages import is_view, node_bytes, returned_storages, storage_root


@dataclass(frozen=True, slots=True)
class Value:
    """A value that the forward computes, or could compute."""

    node: Node
    size_bytes: int
    """The memory that saving it adds."""
    flops: int
    """The cost of recomputing it; 0 where the forward does not compute it."""
    save: Reason | None = None
    """Why the backward may not recompute it; None when it may."""
    recompute: Reason | None = None
    """Why it may not be saved; None when it may be. With `save` set too, the backward cannot have the value
    at all."""
    sources: tuple[int, ...] = ()
    """Identities of the operands."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Which values to save so that the backward can compute everything that it reads."""

    values: tuple[Value, ...]
    """The values that the backward may need, in program order."""
    read: frozenset[int]
    """Identities of the values that the backward reads directly."""

    def by_identity(self) -> dict[int, Value]:
        return {id(value.node): value for value in self.values}

    def recomputed(self, saved: Iterable[int]) -> tuple[Value, ...]:
        """Return the values that the backward recomputes if `saved` are saved, in program order."""
        saved_ids = frozenset(saved)
        needed = needed_values(self.values, self.read, lambda value: id(value.node) not in saved_ids)
        needed -= saved_ids
        return tuple(value for value in self.values if id(value.node) in needed)


def needed_values(
    values: Sequence[Value], read: Iterable[int], needs_sources: Callable[[Value], bool]
) -> set[int]:
    """Return what must be available for `read`, where some of the values need their operands."""
    needed = set(read)
    for value in reversed(values):
        if id(value.node) in needed and needs_sources(value):
            needed.update(value.sources)
    return needed


def recompute_path(values: Mapping[int, Value], node: Node, saved: frozenset[int]) -> tuple[Value, ...]:
    """Return the path to `node` from the nearest value that recomputing it needs and that is not available.

    `save` of the first value of the path says why it is not.  The path is empty when nothing but the cost
    prevents recomputing `node`.
    """
    start = values[id(node)]
    before: dict[int, Value] = {}
    queue = [start]
    for value in queue:
        if value is not start and value.save is not None:
            path = [value]
            while path[-1] is not start:
                path.append(before[id(path[-1].node)])
            return tuple(path)
        for source in value.sources:
            other = values.get(source)
            if other is None or source in saved or source in before or other is start:
                continue
            if other.recompute is not None or other.size_bytes:  # else saving it would be free
                before[source] = value
                queue.append(other)
    return ()


class InfeasibleError(Exception):
    """No set of saved values lets the backward compute everything that it reads; names a missing value."""

    def __init__(self, value: Value) -> None:
        super().__init__(value.node.name)
        self.value = value


def build_problem(
    joint: Joint, sides: Sides, priced: bool, forced: Mapping[int, Decision] | None = None
) -> Problem:
    """Return the problem of a joint program; `forced` holds the user's overrides by node identity.

    With `priced`, for the policy `budget`, work has a price; otherwise rules that estimate cost (slow to
    recompute, small) decide.
    """
    read = _read_by_backward(joint, sides)
    facts = _Facts(joint, sides, priced)
    decisions = {
        identity: choice for identity, choice in (forced or {}).items() if identity not in sides.inputs
    }
    values = [_overridden(facts.value(node), decisions.get(id(node))) for node in sides.forward_nodes(joint)]
    return _relevant(_possible(values), read)


def _possible(values: list[Value]) -> list[Value]:
    """Mark the values that cannot be recomputed because an operand is unavailable in the backward."""
    lost: set[int] = set()
    marked = []
    for original in values:
        needs_lost = original.save is None and not lost.isdisjoint(original.sources)
        value = replace(original, save=Reason.NEEDS_CHANGING) if needs_lost else original
        if value.save is not None and value.recompute is not None:
            lost.add(id(value.node))
        marked.append(value)
    return marked


def _relevant(values: list[Value], read: frozenset[int]) -> Problem:
    """Keep the values that the backward reads, and those from which it could compute them."""
    wanted = needed_values(values, read, lambda value: value.save is None)
    relevant = tuple(value for value in values if id(value.node) in wanted)
    return Problem(relevant, read & {id(value.node) for value in relevant})


def _overridden(value: Value, decision: Decision | None) -> Value:
    """Apply the user's override to a value; a value that they save costs nothing, so that it is saved."""
    if decision is Decision.SAVE:
        return replace(value, save=Reason.USER, recompute=None, size_bytes=0)
    if decision is Decision.RECOMPUTE:
        return replace(value, save=None, recompute=Reason.USER)
    return value


class _Facts:
    """Facts about a joint program that are the same for all values, computed once."""

    def __init__(self, joint: Joint, sides: Sides, priced: bool) -> None:
        self._sides, self._priced = sides, priced
        self._slots = {id(program_input.node): program_input.slot for program_input in joint.program.inputs}
        saved_by_eager = _storages_that_eager_keeps(joint, sides)
        parameters = {identity for identity, slot in self._slots.items() if isinstance(slot, Parameter)}
        fixed = {id(node) for node in joint.program.nodes if node.constant is not None} | parameters
        externally_owned = returned_storages(joint) | sides.inputs
        self._free = (externally_owned & saved_by_eager | fixed) - sides.changed_inputs
        self._may_change = externally_owned - self._free - sides.changed_inputs
        self._leave_checkpoints = sides.checkpoint_outputs | sides.passed_between_checkpoints

    def value(self, node: Node) -> Value:
        """Return a node's costs for the solver, and why it must be saved or recomputed, if it must."""
        save, recompute = self._must_save(node), self._must_recompute(node)
        if recompute not in (Reason.MAY_CHANGE, Reason.BUNDLE):  # these may be neither saved nor recomputed
            if save is not None and save.freedom is Freedom.FORCED:
                recompute = None
            elif recompute is not None:
                save = None
        has_work = self._priced and self._sides.is_forward_value(node)
        return Value(
            node,
            0 if id(node) in self._free else node_bytes(node),
            node_flops(node) if has_work else 0,
            save,
            recompute,
            tuple(dict.fromkeys(id(source) for source in node.inputs())),
        )

    def _must_save(self, node: Node) -> Reason | None:
        """Return why the backward may not recompute the value.

        A size is saved as a number: recomputing it would save its tensor, and reject later writes to that.
        """
        if node.op is None:
            return _owner(node, self._slots.get(id(node)))
        if id(node) in self._free and not has_several_outputs(node):
            return Reason.OUTPUT
        if is_number(node):
            return Reason.SIZE
        if self._sides.reads_mutated_input(node):
            return Reason.MUTATED_LATER
        if is_checkpointed(node) and id(node) in self._sides.passed_between_checkpoints:
            return Reason.CHECKPOINT_GIVES
        if not self._sides.is_forward_value(node):
            return None
        rule = choose(node)
        if rule is None or rule.decision is not Decision.SAVE:
            return None
        if not self._priced or rule.reason not in (Reason.COSTLY, Reason.REDUCTION):
            return rule.reason
        return None if has_price(node) else Reason.COSTLY

    def _must_recompute(self, node: Node) -> Reason | None:
        """Return why the value may not be saved."""
        if id(node) in self._may_change and not is_number(node):  # numbers are immutable
            return Reason.MAY_CHANGE
        if is_view(node):
            return Reason.VIEW
        if has_several_outputs(node):
            return Reason.BUNDLE
        if is_checkpointed(node) and id(node) not in self._leave_checkpoints:
            return Reason.CHECKPOINT
        return None


def _storages_that_eager_keeps(joint: Joint, sides: Sides) -> set[int]:
    """Return the storages, by identity, that eager saves for its backward and checks for mutations.

    Derivative formulas read them, or they are inputs of an activation checkpoint.
    """
    storages: set[int] = set()
    for node in joint.program.nodes:
        if not sides.is_forward_value(node) or node.origin.checkpoint is not None:
            storages.update(id(storage_root(source)) for source in node.inputs())
    storages.update(id(storage_root(out.value)) for out in joint.gradients if isinstance(out.value, Node))
    return storages


def _owner(node: Node, slot: object) -> Reason:
    if node.constant is not None:
        return Reason.CONSTANT
    return Reason.PARAMETER if isinstance(slot, (Parameter, Buffer)) else Reason.INPUT


def _read_by_backward(joint: Joint, sides: Sides) -> frozenset[int]:
    """Return the values that a backward node or a gradient output reads directly."""
    read = {id(out.value) for out in joint.gradients if isinstance(out.value, Node)}
    for node in joint.program.nodes:
        if id(node) in sides.backward:
            read.update(id(source) for source in node.inputs())
    return frozenset(read - sides.backward)


def overruled_checkpoint(node: Node, saved: bool) -> str | None:
    """Return what the user's checkpoint policy asked for, if the opposite was done with a value that it
    marks."""
    checkpoint = node.origin.checkpoint
    if checkpoint is None or is_view(node):
        return None
    wants_recompute = checkpoint.mark in (CheckpointMark.MUST_RECOMPUTE, CheckpointMark.PREFER_RECOMPUTE)
    if saved and wants_recompute and (is_random(node) or is_effect(node)):
        return "an activation checkpoint, which would recompute it"
    if not saved and checkpoint.mark is CheckpointMark.MUST_SAVE:
        return "an activation checkpoint's policy, which would save it"
    return None
