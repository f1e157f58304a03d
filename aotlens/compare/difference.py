"""The changes in another trace of the same code: graphs, saved bytes, peak, kernels and wrapper, by line.

Invariant: standard library only. Names of nodes, line numbers and comments make no difference, so two traces
of code with the same effect have an empty difference.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aotlens.compare.line_pairs import Line, LinePairs, pair_lines
from aotlens.compare.node_pairs import pair_nodes
from aotlens.compare.saved import SavedChange, saved_changes
from aotlens.compare.step import StepChange, step_change
from aotlens.compare.weights import Weights, phase_program, total_weights, weights_by_line
from aotlens.model.report import Diagnostic, Phase, Report, Stage, StageNode, Target
from aotlens.view.quantities import applied_steps, signature

__all__ = [
    "LineChange",
    "NodeChange",
    "ReportChange",
    "TargetChange",
    "Weights",
    "report_change",
    "report_pairs",
    "target_change",
]


@dataclass(frozen=True, slots=True)
class NodeChange:
    """An operator that one of the programs lacks, or that changed."""

    kind: Literal["added", "removed", "changed"]
    phase: Phase
    before: StageNode | None
    after: StageNode | None
    what: str = ""
    """The change, or the reason for a node that the compiler added: `part of the gradient of …`."""

    @property
    def node(self) -> StageNode:
        """Return the new node, or the removed one."""
        existing = self.after or self.before
        assert existing is not None
        return existing


@dataclass(frozen=True, slots=True)
class LineChange:
    """A line of the user's whose cost changed."""

    before: Line | None
    """None for a line that is new."""
    after: Line | None
    """None for a removed line."""
    change: Weights
    """New less old."""
    nodes: tuple[NodeChange, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetChange:
    """One target in two traces."""

    qualname: str
    name: str
    before: Weights
    after: Weights
    lines: tuple[LineChange, ...] = ()
    """The changed lines; changes without a line of the user's are in `elsewhere`."""
    elsewhere: tuple[NodeChange, ...] = ()
    """Changed operators that no line of the user's causes."""
    steps_added: tuple[str, ...] = ()
    steps_removed: tuple[str, ...] = ()
    findings_new: tuple[Diagnostic, ...] = ()
    findings_gone: tuple[Diagnostic, ...] = ()
    saved: tuple[SavedChange, ...] = ()
    """Values with more or fewer saved bytes."""

    @property
    def is_empty(self) -> bool:
        changed = (self.lines, self.elsewhere, self.steps_added, self.steps_removed, self.saved)
        return self.before == self.after and not any((*changed, self.findings_new, self.findings_gone))

    @property
    def nodes(self) -> tuple[NodeChange, ...]:
        return (*(node for line in self.lines for node in line.nodes), *self.elsewhere)


@dataclass(frozen=True, slots=True)
class ReportChange:
    """Two reports, target by target."""

    targets: tuple[TargetChange, ...]
    """The targets of both reports."""
    added: tuple[Target, ...] = ()
    removed: tuple[Target, ...] = ()
    step: StepChange | None = None
    """The memory of the step, if both are results of `aotlens fit`."""

    @property
    def is_empty(self) -> bool:
        if self.step is not None and not self.step.is_empty:
            return False
        return not (self.added or self.removed) and all(target.is_empty for target in self.targets)


def report_change(old: Report, new: Report) -> ReportChange:
    """Return the changes of each target; targets are paired as by `report_pairs`."""
    pairs, added, removed = report_pairs(old, new)
    step = None if old.fit is None or new.fit is None else step_change(old.fit, new.fit)
    return ReportChange(tuple(target_change(*pair) for pair in pairs), added, removed, step)


def report_pairs(
    old: Report, new: Report
) -> tuple[tuple[tuple[Target, Target], ...], tuple[Target, ...], tuple[Target, ...]]:
    """Return the targets of both reports in pairs, in the new order; then the added and the removed ones.

    Targets are paired by name, several captures of one name by their signatures, then in order.
    """
    pairs: list[tuple[Target, Target]] = []
    rest, others = list(old.targets), list(new.targets)
    for key in (_capture, _qualname):
        waiting: dict[object, deque[Target]] = defaultdict(deque)
        for candidate in rest:
            waiting[key(candidate)].append(candidate)
        paired = [(waiting[name].popleft(), target) for target in others if waiting[name := key(target)]]
        gone = {id(target) for pair in paired for target in pair}
        rest = [target for target in rest if id(target) not in gone]
        others = [target for target in others if id(target) not in gone]
        pairs += paired
    if len(rest) == len(others) == 1 and not pairs:  # the target itself has another name
        pairs.append((rest.pop(), others.pop()))
    order = {id(target): index for index, target in enumerate(new.targets)}
    pairs.sort(key=lambda pair: order[id(pair[1])])
    return tuple(pairs), tuple(others), tuple(rest)


def _capture(target: Target) -> object:
    return target.qualname, target.mode, signature(target)


def _qualname(target: Target) -> object:
    return target.qualname


def target_change(old: Target, new: Target) -> TargetChange:
    """Return the changes of one target; nodes are paired first, since lines and saved values follow them."""
    lines = pair_lines(old, new)
    nodes, partners = _node_changes(old, new, lines)
    steps = [[step.name for step in applied_steps(target)] for target in (old, new)]
    gone, fresh = _findings(old, new, lines)
    return TargetChange(
        new.qualname,
        new.name,
        total_weights(old),
        total_weights(new),
        tuple(_line_changes(old, new, lines, nodes)),
        tuple(node for node in nodes if not node.node.spans),
        tuple((Counter(steps[1]) - Counter(steps[0])).elements()),
        tuple((Counter(steps[0]) - Counter(steps[1])).elements()),
        fresh,
        gone,
        saved_changes(old, new, partners),
    )


# Graphs


def _node_changes(
    old: Target, new: Target, lines: LinePairs
) -> tuple[tuple[NodeChange, ...], dict[str, str]]:
    """Return the changed nodes of the programs that run, and the old names of nodes by their new ones."""
    changes: list[NodeChange] = []
    known: dict[str, str] = {}
    for phase in ("forward", "backward"):
        before, after = phase_program(old, phase), phase_program(new, phase)
        if phase == "forward":
            known = _known_inputs(before, after)
        paired = pair_nodes(before, after, known, lines)
        shown_phase: Phase = "inference" if new.mode == "inference" and phase == "forward" else phase
        known |= {new_node.name: old_node.name for old_node, new_node in paired.pairs}
        changes += [NodeChange("removed", shown_phase, node, None, node.reason) for node in paired.removed]
        changes += [NodeChange("added", shown_phase, None, node, node.reason) for node in paired.added]
        changes += [
            NodeChange("changed", shown_phase, old_node, new_node, what)
            for old_node, new_node, what in paired.changed
        ]
    return tuple(changes), known


def _known_inputs(old: Stage, new: Stage) -> dict[str, str]:
    """Old names of inputs by new ones: those of one name, and the others of one type in order."""
    before = {node.name: node for node in old.nodes if node.op == "placeholder"}
    after = {node.name: node for node in new.nodes if node.op == "placeholder"}
    old_names = {name: name for name in after if name in before}
    free = [node for name, node in before.items() if name not in old_names]
    for name, node in after.items():
        same = next(
            (candidate for candidate in free if name not in old_names and _type(candidate) == _type(node)),
            None,
        )
        if same is not None:
            old_names[name] = same.name
            free.remove(same)
    return old_names


def _type(node: StageNode) -> str:
    return node.tensor.short() if node.tensor is not None else ""


# Lines


def _line_changes(
    old: Target, new: Target, lines: LinePairs, nodes: tuple[NodeChange, ...]
) -> Iterator[LineChange]:
    """Yield the changed lines in the order of the new source, removed lines last."""
    before = weights_by_line(old, lines.of_old)
    after = weights_by_line(new, lines.of_new)
    changed: dict[object, list[NodeChange]] = {}
    for node in nodes:
        if node.node.spans:
            key_of = lines.of_new if node.after is not None else lines.of_old
            changed.setdefault(key_of(node.node.spans[0]), []).append(node)
    rows = []
    for key in dict.fromkeys((*after, *before, *changed)):
        change = after.get(key, Weights()).minus(before.get(key, Weights()))
        if change != Weights() or key in changed:
            rows.append(LineChange(*lines.line(key), change, tuple(changed.get(key, ()))))
    yield from sorted(rows, key=_source_order)


def _source_order(row: LineChange) -> tuple[bool, str, int]:
    line = row.after or row.before
    assert line is not None
    return row.after is None, line.file, line.number


def _findings(
    old: Target, new: Target, lines: LinePairs
) -> tuple[tuple[Diagnostic, ...], tuple[Diagnostic, ...]]:
    """Return the removed findings and the new ones; findings with the same code at the same line are
    equal."""
    before = Counter((finding.code, lines.of_old(finding.span)) for finding in old.diagnostics)
    after = Counter((finding.code, lines.of_new(finding.span)) for finding in new.diagnostics)
    gone = tuple(
        finding for finding in old.diagnostics if (finding.code, lines.of_old(finding.span)) not in after
    )
    fresh = tuple(
        finding for finding in new.diagnostics if (finding.code, lines.of_new(finding.span)) not in before
    )
    return gone, fresh
