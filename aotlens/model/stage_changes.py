"""The differences between the programs of two stages, by the origins of nodes instead of their names.

Invariant: every node of both stages is in one change or is counted as unchanged; if neither stage is an
ancestor of the other, they are compared over the stage that both come from.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aotlens.errors import UserError
from aotlens.model.report import Report, Span, Stage, StageNode, Target, Wrapper, WrapperStep

WRAPPER = "wrapper"
"""The stage name of the text of the module that runs."""
KERNELS = "kernels"
"""For the code for a GPU."""
CUDA_GRAPH = "cuda-graph"
"""For the verdict on CUDA graphs."""

PROGRAM_STAGES = (
    "captured",
    "desugared",
    "functional",
    "decomposed",
    "joint",
    "joint_passes",
    "forward",
    "backward",
    "inference",
)
"""All that a target's stages may be called, in order; which of them one has depends on the target."""

ChangeKind = Literal["replaced", "added", "removed", "rewired"]


@dataclass(frozen=True, slots=True)
class StageChange:
    """Nodes of one stage and their counterparts in the other."""

    kind: ChangeKind
    before: tuple[StageNode, ...]
    after: tuple[StageNode, ...]
    reason: str = ""
    """Why a stage added it, or what it reads instead; empty where the nodes need no reason."""

    @property
    def span(self) -> Span | None:
        """Return the user's expression that the change belongs to."""
        spans = (node.spans[0] for node in (*self.before, *self.after) if node.spans)
        return next(spans, None)


@dataclass(frozen=True, slots=True)
class StageDifference:
    """One stage beside another."""

    before: str
    after: str
    kept: int
    """Operators that are the same in both."""
    changes: tuple[StageChange, ...]


def stage_difference(target: Target, before: str, after: str) -> StageDifference | None:
    """Return the difference of two stages; None when the target lacks one of them."""
    old = target.stage(before)
    if after == WRAPPER and old is not None and target.wrapper is not None:
        return _wrapper_difference(target, old, target.wrapper)
    comparison = compared(target, before, after)
    return comparison.difference() if comparison is not None else None


def compared(target: Target, before: str, after: str) -> "Comparison | None":
    """Return the operators of two stages in pairs; None when the target lacks one of them."""
    old, new = target.stage(before), target.stage(after)
    if old is None or new is None:
        return None
    root = _common_ancestor(target, before, after)
    roots_of_old, roots_of_new = _roots(target, before, root), _roots(target, after, root)
    by_root: dict[str, list[str]] = {}
    for name, roots in roots_of_old.items():
        for root_name in roots:
            by_root.setdefault(root_name, []).append(name)
    from_ = {name: _related(roots, by_root) for name, roots in roots_of_new.items()}
    return Comparison(old, new, from_)


def _related(names: Sequence[str], by_name: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the nodes that a table has for some names, each once; most nodes come from one other."""
    if len(names) == 1:
        return tuple(by_name.get(names[0], ()))
    return tuple(dict.fromkeys(related for name in names for related in by_name.get(name, ())))


def _wrapper_difference(target: Target, stage: Stage, wrapper: Wrapper) -> StageDifference:
    """Return the wrapper's work around a graph on each call, after the changes to an earlier stage."""
    steps = tuple(
        StageChange("added", (), (_step_node(step),), step.reason) for step in wrapper.steps if step.applied
    )
    graph = next(name for name in ("inference", "forward") if target.stage(name) is not None)
    comparison = compared(target, stage.name, stage.name if stage.name == "backward" else graph)
    assert comparison is not None  # the target has both
    before = comparison.difference()
    return replace(before, after=WRAPPER, changes=(*before.changes, *steps))


def _step_node(step: WrapperStep) -> StageNode:
    return StageNode(step.name, "step", step.name, (), None, tuple(site.span for site in step.sites))


def made_from(target: Target, name: str) -> tuple[str, ...]:
    """Return the stage and those that it was made from, back to the first."""
    parents = {stage.name: stage.parent for stage in target.stages}
    stages: list[str] = []
    current: str | None = name
    while current is not None:
        stages.append(current)
        current = parents.get(current)
    return tuple(stages)


def _common_ancestor(target: Target, first: str, other: str) -> str:
    known = set(made_from(target, other))
    return next((name for name in made_from(target, first) if name in known), first)


def _roots(target: Target, name: str, root: str) -> dict[str, tuple[str, ...]]:
    """Return by node of a stage the names of its origins in an earlier stage."""
    stage = target.stage(name)
    names = tuple(node.name for node in stage.nodes) if stage is not None else ()
    if stage is None or name == root:
        return {node: (node,) for node in names}
    row = next(row for row in target.stages if row.name == name)
    assert row.parent is not None  # since the root is an ancestor
    earlier = _roots(target, row.parent, root)
    if row.same_as is not None:
        return earlier
    return {node.name: _related(node.from_, earlier) for node in stage.nodes}


class Comparison:
    """Pairs the operators of two programs."""

    def __init__(self, old: Stage, new: Stage, from_: dict[str, tuple[str, ...]]) -> None:
        self._old, self._new, self._from = old, new, from_
        self._old_nodes = {node.name: node for node in old.nodes}
        self._new_nodes = {node.name: node for node in new.nodes}
        self.partners: dict[str, str] = {}
        """Name in the old stage by the name in the new one."""
        self._pair([node for node in new.nodes if node.op != "output"])

    @property
    def stages(self) -> tuple[Stage, Stage]:
        return self._old, self._new

    def difference(self) -> StageDifference:
        """Return what is not paired, in the order of the new program; a removed node where it was."""
        new = [node for node in self._new.nodes if node.op != "output"]
        matched = set(self.partners.values())
        groups: dict[tuple[str, ...], list[StageNode]] = {}
        changes: list[StageChange] = []
        for node in new:
            if node.name in self.partners:
                continue
            gone = tuple(name for name in self._counterparts(node) if name not in matched)
            if gone:
                groups.setdefault(gone, []).append(node)
            else:
                changes.append(StageChange("added", (), (node,), self._why(node)))
        replaced = {name for gone in groups for name in gone}
        for gone, nodes in groups.items():
            before = tuple(self._old_nodes[name] for name in gone)
            changes.append(StageChange("replaced", before, tuple(nodes)))
        changes += [
            StageChange("removed", (node,), ())
            for node in self._old.nodes
            if node.op != "output" and node.name not in matched and node.name not in replaced
        ]
        changes += self._rewired(groups)
        positions = {node.name: index for index, node in enumerate(self._new.nodes)}
        removed = self._removed_positions(positions)
        changes.sort(
            key=lambda change: (
                positions[change.after[0].name] if change.after else removed[change.before[0].name]
            )
        )
        return StageDifference(self._old.name, self._new.name, len(self.partners), tuple(changes))

    def _removed_positions(self, positions: Mapping[str, int]) -> dict[str, float]:
        """Return the position of each removed old node: right after the successor of the node before it."""
        last: dict[str, int] = {}
        for node in self._new.nodes:
            for name in self._counterparts(node):
                last[name] = max(last.get(name, -1), positions[node.name])
        removed_positions: dict[str, float] = {}
        position = -1
        for node in self._old.nodes:
            position = max(position, last.get(node.name, position))
            removed_positions[node.name] = position + 0.5
        return removed_positions

    def _pair(self, nodes: list[StageNode]) -> None:
        """Pair a node that has the same operator as its counterpart; each old one is paired once."""
        matched: set[str] = set()
        for node in nodes:
            for name in self._from.get(node.name, ()):
                old = self._old_nodes[name]
                if name not in matched and self._is_same(old, node):
                    self.partners[node.name] = name
                    matched.add(name)
                    break

    def _counterparts(self, node: StageNode) -> Iterator[str]:
        """Yield the old nodes that it comes from, without those whose gradient it computes."""
        for name in self._from.get(node.name, ()):
            if self._old_nodes[name].is_of_gradient or not node.is_of_gradient:
                yield name

    def _is_same(self, old: StageNode, new: StageNode) -> bool:
        """Return True if one operator is the counterpart of the other; inputs always are."""
        same = old.op == new.op and (old.op == "placeholder" or old.target == new.target)
        same = same and old.is_of_gradient == new.is_of_gradient
        return same and _wrappers(old, self._old_nodes) == _wrappers(new, self._new_nodes)

    def _why(self, node: StageNode) -> str:
        from_ = ", ".join(f"`{name}`" for name in self._from.get(node.name, ()))
        return node.reason or (f"made of {from_}" if from_ else "")

    def _rewired(self, groups: dict[tuple[str, ...], list[StageNode]]) -> Iterator[StageChange]:
        """Yield the operators of both stages that read another value than before."""
        stands_for = {new: {old} for new, old in self.partners.items()}
        for gone, nodes in groups.items():
            for node in nodes:
                stands_for[node.name] = set(gone)
        for new_name, old_name in self.partners.items():
            old, new = self._old_nodes[old_name], self._new_nodes[new_name]
            fresh = [name for name in new.inputs if not stands_for.get(name, set()) & set(old.inputs)]
            if fresh and new.op == "call_function":
                reads = ", ".join(f"`{name}`" for name in fresh)
                yield StageChange("rewired", (old,), (new,), f"reads {reads}")


def _wrappers(node: StageNode, nodes: Mapping[str, StageNode]) -> list[str | None]:
    """Return the subclasses of a node's result and inputs."""
    tensors = (node.tensor, *(nodes[name].tensor for name in node.inputs))
    return [tensor.subclass for tensor in tensors if tensor is not None and tensor.subclass is not None]


def parse_range(text: str) -> tuple[str, str] | None:
    """Return the two stages of `A..B`; None for one stage's name. Raises UserError for half a range."""
    before, dots, after = text.partition("..")
    if not dots:
        return None
    if not before or not after:
        raise UserError(f"--stage {text!r} is half a range; give two stages, as `captured..functional`")
    return before, after


def check_stage(text: str) -> None:
    """Raises UserError for a stage, or a range of two, that no report can have."""
    both = parse_range(text)
    known = (*PROGRAM_STAGES, WRAPPER, *((KERNELS, CUDA_GRAPH) if both is None else ()))
    wrong = next((name for name in both or (text,) if name not in known), None)
    if wrong is None:
        return
    near = difflib.get_close_matches(wrong, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    more = "" if both is not None else ", or the difference of two, as captured..functional"
    raise UserError(f"no stage {wrong!r}; {hint}there is {', '.join(known)}{more}")


def unknown_stage(report: Report, name: str) -> UserError:
    """Return the error for a stage, or a range of two, that no target of the report has."""
    failed = next((target.gpu_error for target in report.targets if target.gpu_error), "")
    if name == KERNELS and failed:
        return UserError(failed)
    known = list(dict.fromkeys(stage.name for target in report.targets for stage in target.stages))
    if any(target.wrapper is not None for target in report.targets):
        known.append(WRAPPER)
    if any(target.kernels for target in report.targets):
        known.append(KERNELS)
    if any(target.cuda_graph is not None for target in report.targets):
        known.append(CUDA_GRAPH)
    both = parse_range(name)
    missing = [stage_name for stage_name in both or (name,) if stage_name not in known]
    if not missing:
        return UserError(f"no target has both stages of {name!r}; this report has {', '.join(known)}")
    return UserError(f"no stage {' or '.join(map(repr, missing))}; this report has {', '.join(known)}")
