"""The partition stage: a joint program and a policy give forward, backward, and what passes between."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from aotlens.errors import UserError
from aotlens.ir.program import (
    Node,
    Program,
    ProgramInput,
    ProgramOutput,
    ancestors,
    before_backward,
    has_effect,
    nodes_in,
    reachable,
    writes_input,
)
from aotlens.ir.slots import BACKWARD_INPUTS, FlatInput, SavedForBackward, SavedInput
from aotlens.joint.data_sizes import sizes_to_save, with_sizes
from aotlens.joint.records import Joint, JointProgram
from aotlens.options import POLICIES, PartitionFunction
from aotlens.partition.custom import inference_with, partition_with
from aotlens.partition.min_cut import cheapest_cut
from aotlens.partition.records import Partitioned, Recomputed, Saved
from aotlens.partition.rules import (
    DEFAULT_SAVES,
    MIN_CUT_RECOMPUTES,
    MIN_CUT_SAVES,
    choose,
    is_checkpointed,
    is_number,
)
from aotlens.partition.sides import Sides, split_sides
from aotlens.partition.storages import is_view, node_bytes, storage_root
from aotlens.policy import Policy


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy's answer: the values that the forward hands on, in program order."""

    saved: tuple[Node, ...]
    reason: Callable[[Node], str]


@dataclass(frozen=True, slots=True)
class Split:
    """What a policy made of a joint program."""

    sides: Sides
    choice: Choice
    saved: tuple[Node, ...]
    """Inputs that the backward reads, then chosen values, in program order."""
    backward_nodes: tuple[Node, ...]


def partition(
    joint: JointProgram, policy: str | Policy | PartitionFunction, module: fx.GraphModule | None = None
) -> Partitioned:
    """Split the joint program; in inference the forward is the whole of it.

    `module` is the program as a graph module that its user edited, for a policy that is a function.
    """
    policy = _base(policy) if isinstance(policy, Policy) else policy
    if module is not None and not joint.training:
        return inference_with(joint, module)
    if not joint.training:
        name = policy if isinstance(policy, str) else "none"
        return Partitioned(joint, name, _named(joint.program, "inference"), None)
    if not isinstance(policy, str):
        return partition_with(joint, policy, module)
    split = split_joint(joint, policy)
    saved = (*split.saved, *sizes_to_save(joint, split.saved, split.backward_nodes))
    return Partitioned(
        joint=joint,
        policy=policy,
        forward=_forward_program(joint, saved),
        backward=_backward_program(joint, saved, split.backward_nodes),
        saved=_describe(joint, saved, split.choice),
        recomputed=recomputed_values(split.backward_nodes, split.sides),
    )


def _base(policy: Policy) -> str:
    if policy.base not in POLICIES or policy.overrides or policy.function is not None:
        raise UserError(f"not supported: the policy `{policy}`; choose one of {', '.join(POLICIES)}")
    return policy.base


def split_joint(joint: Joint, policy: str) -> Split:
    """The values to save, and the backward that they leave.

    Raises:
        UserError: no policy of that name.
    """
    if policy not in POLICIES:
        raise UserError(f"no partition policy `{policy}`; choose one of {', '.join(POLICIES)}")
    sides = split_sides(joint)
    choice = _min_cut(joint, sides) if policy == "min-cut" else _default(joint, sides)
    available = sides.inputs - sides.changed_inputs
    backward_nodes, read = _backward_nodes(joint, sides, {id(node) for node in choice.saved})
    kept = _kept_inputs(joint, available, read)
    saved = (*kept, *(node for node in choice.saved if id(node) in read))
    return Split(sides, choice, saved, backward_nodes)


def _named(program: Program, name: str) -> Program:
    return Program(name, program.inputs, program.nodes, program.outputs)


def _default(joint: Joint, sides: Sides) -> Choice:
    """Save whatever the forward computes and the backward reads."""
    read: set[int] = {id(out.value) for out in joint.gradients}
    for node in joint.program.nodes:
        if not sides.made_by_forward(node):
            read.update(id(source) for source in node.inputs())
    again: set[int] = set()
    for node in reversed(joint.program.nodes):
        kept = id(node) in sides.leaving or sides.only_now(node) or not is_checkpointed(node)
        kept = (kept and (joint.keeps_views or not is_view(node))) or has_effect(node)
        if id(node) in read and not kept:
            again.add(id(node))
            read.update(id(source) for source in node.inputs())
    saved = tuple(
        node
        for node in joint.program.nodes
        if sides.made_by_forward(node)
        and id(node) in read - again
        and not isinstance(node.val, (list, tuple))
    )
    return Choice(saved, lambda _: DEFAULT_SAVES)


def _min_cut(joint: Joint, sides: Sides) -> Choice:
    cut = cheapest_cut(joint, sides)
    saved = tuple(node for node in joint.program.nodes if id(node) in cut.saved)

    def reason(node: Node) -> str:
        rule = choose(node)
        return rule.reason if rule is not None else MIN_CUT_SAVES

    return Choice(saved, reason)


def _backward_nodes(joint: Joint, sides: Sides, saved: set[int]) -> tuple[tuple[Node, ...], set[int]]:
    """The backward's nodes, each recomputed value just before its first reader, and all that they read."""
    given = saved | sides.inputs | {id(item.node) for item in joint.program.inputs}
    order: list[Node] = []
    done: set[int] = set()
    read: set[int] = {id(node) for node in nodes_in(out.value for out in joint.gradients)}

    def visit(node: Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            if id(top) in done or id(top) in given:
                stack.pop()
                continue
            waiting = [
                source for source in top.inputs() if id(source) not in done and id(source) not in given
            ]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            done.add(id(top))
            order.append(top)
            read.update(id(source) for source in top.inputs())

    needed = ancestors([out.value for out in joint.gradients], joint.program.nodes)
    for node in joint.program.nodes:
        if id(node) in sides.backward and (id(node) in needed or has_effect(node)) and not writes_input(node):
            visit(node)
    for node in nodes_in(out.value for out in joint.gradients):
        visit(node)
    for node in joint.program.nodes:
        if writes_input(node) and node.origin.backward:
            visit(node)
    return tuple(order), read


def _kept_inputs(joint: Joint, available: frozenset[int], read: set[int]) -> tuple[Node, ...]:
    return tuple(
        given.node for given in joint.program.inputs if id(given.node) in available and id(given.node) in read
    )


def _forward_program(joint: JointProgram, saved: tuple[Node, ...]) -> Program:
    """The forward hands out what it computes; saved inputs and results are at hand where it is called."""
    at_hand = {id(out.value) for out in joint.forward_outputs}
    outputs = (
        *joint.forward_outputs,
        *(
            ProgramOutput(node, SavedForBackward(node.name))
            for node in _numbers_last(saved)
            if node.op is not None and id(node) not in at_hand
        ),
    )
    every = with_sizes(joint.program.nodes, saved)
    nodes = reachable([out.value for out in outputs], before_backward(every))
    inputs = tuple(given for given in joint.program.inputs if not isinstance(given.slot, BACKWARD_INPUTS))
    return Program("forward", inputs, nodes, outputs)


def _numbers_last(saved: tuple[Node, ...]) -> tuple[Node, ...]:
    """Tensors first, then sizes: the order in which the runtime keeps them."""
    return tuple(sorted(saved, key=is_number))


def _backward_program(joint: JointProgram, saved: tuple[Node, ...], nodes: tuple[Node, ...]) -> Program:
    arriving = tuple(given for given in joint.program.inputs if isinstance(given.slot, BACKWARD_INPUTS))
    inputs = (*(ProgramInput(node, SavedInput(node.name)) for node in _numbers_last(saved)), *arriving)
    kept = tuple(node for node in nodes if not has_effect(node) or node.origin.backward)
    return Program("backward", inputs, kept, joint.gradients)


def _describe(joint: JointProgram, saved: tuple[Node, ...], choice: Choice) -> tuple[Saved, ...]:
    """What each saved value adds to memory: nothing where an input, a result or an earlier one keeps it."""
    outputs = {id(storage_root(out.value)) for out in joint.handed_out if isinstance(out.value, Node)}
    owners: dict[int, Any] = {
        id(given.node): given.slot
        for given in joint.program.inputs
        if not isinstance(given.slot, BACKWARD_INPUTS)
    }
    counted: set[int] = set()
    roots = Counter(id(storage_root(node)) for node in saved)
    shared = {identity for identity, count in roots.items() if count > 1}
    found = []
    for node in saved:
        root = storage_root(node)
        owner: FlatInput | None = owners.get(id(root))
        is_output = id(root) in outputs
        free = owner is not None or is_output or id(root) in counted
        counted.add(id(root))
        reason = choice.reason(node)
        if owner is not None:
            reason = "kept by its owner anyway"
        elif is_output:
            reason = "a result, which the caller keeps"
        donated = not free and not is_number(node) and root.constant is None and id(root) not in shared
        found.append(Saved(node, reason, owner, is_output, 0 if free else node_bytes(root), donated))
    return tuple(found)


def recomputed_values(nodes: tuple[Node, ...], sides: Sides) -> tuple[Recomputed, ...]:
    """The forward values among the backward's nodes."""
    found = []
    for node in nodes:
        if id(node) in sides.backward or id(node) not in sides.forward:
            continue
        rule = choose(node)
        reason = rule.reason if rule is not None else MIN_CUT_RECOMPUTES
        size = 0 if is_view(node) else node_bytes(node)
        found.append(Recomputed(node, reason, size, _flops(node)))
    return tuple(found)


def _flops(node: Node) -> int:
    """One operation per element of the value: what the cheap operators cost."""
    if is_view(node):
        return 0
    values = node.val if isinstance(node.val, (list, tuple)) else (node.val,)
    counts = [value.numel() for value in values if hasattr(value, "numel")]
    return sum(count if isinstance(count, int) else int(count.node.hint or 0) for count in counts)
