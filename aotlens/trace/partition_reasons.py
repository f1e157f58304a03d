"""Run our partitioner on a graph that torch compiled, for reasons and certificates of what torch saved.

Invariant: our solver handles the joint graph like those of our own programs.  A reason is shown for a value
that both save; the report says if only torch saves it.  The graph is not run: tensors are sizes and strides
on `meta`, and an operator is only looked up by name.

Only this module, `joint_program`, `what_ifs` and `gpu/recompile` import torch; they are loaded on demand.
"""

from dataclasses import replace
from typing import Any

from aotlens.build.certificates import certificates
from aotlens.build.partition import certificate_row, freedom_of
from aotlens.errors import UserError
from aotlens.ir.program import Node
from aotlens.joint.records import Joint
from aotlens.model.partition import FrontierPoint, OwnChoice, Partition, SavedValue
from aotlens.model.report import Input
from aotlens.partition.budget import Frontier
from aotlens.partition.policies import added_bytes, save_all_reads
from aotlens.partition.problem import build_problem
from aotlens.partition.records import Split
from aotlens.partition.stage import recomputed_values, split_joint
from aotlens.partition.storages import storage_root
from aotlens.policy import Policy
from aotlens.trace.facts import GraphSet
from aotlens.trace.joint_program import JointBuilder, UnknownGraphError
from aotlens.trace.partition import TORCH_CHOSE
from aotlens.trace.source.lines import Locate
from aotlens.trace.what_ifs import DEFAULT, SolverRequest

__all__ = ["with_reasons"]


def with_reasons(
    partition: Partition,
    graphs: GraphSet,
    inputs: tuple[Input, ...],
    locate: Locate,
    request: SolverRequest = DEFAULT,
) -> Partition:
    """Return the partition with our reasons where the choices agree, and with what ours would save.

    Raises UserError for a what-if that is impossible for this graph.
    """
    if graphs.joint is None:
        return replace(partition, own_note="the log has no joint graph, so our solver was not asked")
    try:
        joint = JointBuilder(graphs, graphs.joint, inputs, locate).joint()
        split = split_joint(joint, Policy.parse(request.policy))
    except (UnknownGraphError, UserError) as error:
        return replace(partition, own_note=f"our solver was not asked: {error}")
    ours = {node.name: node for node in split.saved}
    roots = {storage_root(node).name: node for node in split.saved}
    by_name = {node.name: node for node in joint.program.nodes}
    certificates_by_node = certificates(split)
    rows = []
    for value in partition.saved:
        own = ours.get(value.node)
        if own is None and value.node in by_name:
            own = roots.get(storage_root(by_name[value.node]).name)
        rows.append(_row(value, own, split, certificates_by_node))
    return replace(
        partition,
        saved=tuple(rows),
        own=_own_choice(partition, joint, split),
        default_bytes=added_bytes(joint, save_all_reads(joint, split.sides).saved),
        frontier=_frontier(joint, split),
        what_if=request.answers(joint, split),
    )


def _frontier(joint: Joint, split: Split) -> tuple[FrontierPoint, ...]:
    problem = build_problem(joint, split.sides, priced=True, forced=split.choice.forced)
    return tuple(FrontierPoint(point.size_bytes, point.flops) for point in Frontier(problem).points())


def _row(
    value: SavedValue, own: Node | None, split: Split, certificates_by_node: dict[int, Any]
) -> SavedValue:
    if own is None:
        why = f"{TORCH_CHOSE}; ours would not save it" if value.bytes else TORCH_CHOSE
        return replace(value, reason=why)
    reason = split.choice.why_saved(own)
    named = certificates_by_node.get(id(own))
    return replace(
        value,
        reason=reason.text,
        code=reason.value,
        freedom=freedom_of(reason),
        certificate=certificate_row(named) if named is not None else None,
    )


def _own_choice(partition: Partition, joint: Joint, split: Split) -> OwnChoice:
    torchs = {value.node for value in partition.saved if value.bytes}
    problem = split.choice.problem
    sizes = {id(value.node): value.size_bytes for value in problem.values} if problem is not None else {}
    new = [node.name for node in split.saved if node.op is not None and sizes.get(id(node))]
    added = added_bytes(joint, split.saved)
    recomputed = recomputed_values(split)
    return OwnChoice(
        policy=str(split.policy),
        saved_bytes=added,
        recompute_flops=sum(item.flops for item in recomputed),
        same=tuple(name for name in new if name in torchs),
        only_ours=tuple(name for name in new if name not in torchs),
        only_torchs=tuple(value.node for value in partition.saved if value.bytes and value.node not in new),
    )
