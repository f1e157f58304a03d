"""Two stages side by side, row by row.

Invariant: every node of the later stage is in exactly one row, in the order of its program; a node of the
earlier stage without a counterpart has a row at its old position.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from aotlens.model.report import StageNode, Target
from aotlens.model.stage_changes import ChangeKind, Comparison, StageChange, StageDifference, compared
from aotlens.view.names import first_names
from aotlens.view.quantities import counted

MOST_NAMES = 3

RowKind = ChangeKind | Literal["unchanged"]


@dataclass(frozen=True, slots=True)
class AlignedRow:
    """A node beside its counterpart in the other stage."""

    kind: RowKind
    before: StageNode | None
    """None where the later stage has more."""
    after: StageNode | None
    """None where the earlier stage has more."""
    reason: str = ""

    @property
    def node(self) -> StageNode:
        """Return the later node, else the earlier one."""
        existing = self.after or self.before
        assert existing is not None  # since a row has one side at least
        return existing


@dataclass(frozen=True, slots=True)
class Alignment:
    """Two stages side by side."""

    difference: StageDifference
    rows: tuple[AlignedRow, ...]


def aligned_stages(target: Target, before: str, after: str) -> Alignment | None:
    """Return the rows of two stages; None when the target lacks one of them."""
    comparison = compared(target, before, after)
    if comparison is None:
        return None
    difference = comparison.difference()
    return Alignment(difference, _rows(comparison, difference))


def _rows(comparison: Comparison, difference: StageDifference) -> tuple[AlignedRow, ...]:
    old, new = comparison.stages
    old_nodes = {node.name: node for node in old.nodes}
    position = {node.name: index for index, node in enumerate(old.nodes)}
    rows = [row for change in difference.changes for row in _change_rows(change)]
    changed = {row.after.name: row for row in rows if row.after is not None}
    gone = deque(sorted((row for row in rows if row.after is None), key=lambda row: position[row.node.name]))
    ordered: list[AlignedRow] = []
    for node in new.nodes:
        row = changed.get(node.name)
        if row is None and node.name in comparison.partners:
            row = AlignedRow("unchanged", old_nodes[comparison.partners[node.name]], node)
        if row is None:
            row = _results_row(node, old.nodes[-1], comparison, rows)
        while gone and row.before is not None and position[gone[0].node.name] < position[row.before.name]:
            ordered.append(gone.popleft())
        ordered.append(row)
    return (*ordered, *gone)


def _change_rows(change: StageChange) -> Iterable[AlignedRow]:
    """Return the nodes of a change in pairs; the longer side ends with rows of its own."""
    for index in range(max(len(change.before), len(change.after))):
        old = change.before[index] if index < len(change.before) else None
        new = change.after[index] if index < len(change.after) else None
        yield AlignedRow(change.kind, old, new, change.reason)


def _results_row(
    node: StageNode, old: StageNode, comparison: Comparison, rows: list[AlignedRow]
) -> AlignedRow:
    """Return the row of the program's outputs: rewired where they differ from before."""
    stands_for = {row.after.name: row.before.name for row in rows if row.after and row.before}
    same = {**comparison.partners, **stands_for}
    fresh = [name for name in node.inputs if same.get(name) not in old.inputs]
    dropped = set(old.inputs) - {same.get(name) for name in node.inputs}
    if not fresh and not dropped:
        return AlignedRow("unchanged", old, node)
    names = first_names([f"`{name}`" for name in fresh], MOST_NAMES)
    return AlignedRow("rewired", old, node, f"returns {names}" if fresh else "returns fewer values")


WORDS = {
    "replaced": "replaced",
    "added": "added",
    "removed": "removed",
    "rewired": "reading another value",
}


def summary(difference: StageDifference) -> str:
    """Return `2 replaced, 1 removed, 5 kept`, or that nothing changes."""
    if not difference.changes:
        return f"changes nothing: {counted(difference.kept, 'node')} kept"
    counts = {kind: sum(change.kind == kind for change in difference.changes) for kind in WORDS}
    parts = [f"{count} {WORDS[kind]}" for kind, count in counts.items() if count]
    return ", ".join([*parts, f"{difference.kept} kept"])
