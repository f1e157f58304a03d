"""Two reports side by side: each line of one beside its counterpart in the other, with its costs.

Invariant: every line that either trace names is in exactly one row, in the order of the new source; a line
that is gone is at its old position.  Standard library only, and no source file is read.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from aotlens.compare.difference import NodeChange, TargetChange, report_pairs, target_change
from aotlens.compare.line_pairs import Line, LinePairs, pair_lines
from aotlens.compare.step import StepChange, step_change
from aotlens.compare.weights import Weights, weights_by_line
from aotlens.model.report import Report, Span, Target

__all__ = ["RowKind", "SideBySide", "SideLine", "SideRow", "TargetPair", "side_by_side"]

RowKind = Literal["same", "changed", "added", "removed"]


@dataclass(frozen=True, slots=True)
class SideLine:
    """One line on one side."""

    line: Line
    weights: Weights
    breaks: int = 0
    """Graph breaks at this line."""


@dataclass(frozen=True, slots=True)
class SideRow:
    """A line beside its counterpart."""

    kind: RowKind
    """`changed` where text, costs or operators differ."""
    before: SideLine | None
    """None for a line that is new."""
    after: SideLine | None
    """None for a line that is gone."""
    change: Weights
    """New less old."""
    nodes: tuple[NodeChange, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetPair:
    """One target on both sides."""

    qualname: str
    change: TargetChange
    rows: tuple[SideRow, ...]
    presence: Literal["both", "added", "removed"] = "both"
    """The sides that have it."""
    gpus: tuple[str, str] = ("", "")
    """The requested GPU of each side; empty without one."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two reports."""

    names: tuple[str, str]
    """What the reader calls each side: a file, a git revision."""
    targets: tuple[TargetPair, ...]
    step: StepChange | None = None
    """The memory of both steps, where both reports are by `aotlens fit`."""

    @property
    def is_empty(self) -> bool:
        return (self.step is None or self.step.is_empty) and all(
            target.presence == "both" and target.change.is_empty and target.gpus[0] == target.gpus[1]
            for target in self.targets
        )


def side_by_side(old: Report, new: Report, names: tuple[str, str]) -> SideBySide:
    """Return every target of either report, those of the new one first."""
    paired, added, removed = report_pairs(old, new)
    breaks = _breaks(old), _breaks(new)
    targets = [_pair(before, after, breaks, "both") for before, after in paired]
    targets += [_pair(_without_code(target), target, breaks, "added") for target in added]
    targets += [_pair(target, _without_code(target), breaks, "removed") for target in removed]
    step = None if old.fit is None or new.fit is None else step_change(old.fit, new.fit)
    return SideBySide(names, tuple(targets), step)


def _without_code(target: Target) -> Target:
    """Return the counterpart of a target that one side lacks."""
    return Target(target.name, target.qualname, target.frontend, target.mode, None)


Breaks = Mapping[tuple[str, int], int]


def _breaks(report: Report) -> Breaks:
    """Return the number of graph breaks at each line."""
    lines: dict[tuple[str, int], int] = {}
    for each in report.dynamo.breaks if report.dynamo is not None else ():
        line = (each.span.file, each.span.line)
        lines[line] = lines.get(line, 0) + 1
    return lines


def _pair(
    old: Target, new: Target, breaks: tuple[Breaks, Breaks], presence: Literal["both", "added", "removed"]
) -> TargetPair:
    change, pairs = target_change(old, new), pair_lines(old, new)
    sides = (
        _Side(pairs.old, weights_by_line(old, _position), breaks[0]),
        _Side(pairs.new, weights_by_line(new, _position), breaks[1]),
    )
    nodes = {_line_key(row.before, row.after): row.nodes for row in change.lines if row.before or row.after}
    rows = tuple(_row(before, after, sides, nodes) for before, after in _in_order(pairs))
    return TargetPair(new.qualname, change, rows, presence, (old.gpu_name, new.gpu_name))


Position = tuple[str, int]
LineKey = tuple[Position | None, Position | None]


@dataclass(frozen=True, slots=True)
class _Side:
    """The lines of one report, with their costs and graph breaks."""

    lines: Mapping[Position, Line]
    weights: Mapping[Hashable, Weights]
    breaks: Breaks

    def line(self, position: Position | None) -> SideLine | None:
        if position is None:
            return None
        weights = self.weights.get(position, Weights())
        return SideLine(self.lines[position], weights, self.breaks.get(position, 0))


def _position(span: Span) -> Position:
    return span.file, span.line


def _line_key(before: Line | None, after: Line | None) -> LineKey:
    return (
        (before.file, before.number) if before is not None else None,
        (after.file, after.number) if after is not None else None,
    )


def _row(
    before: Position | None,
    after: Position | None,
    sides: tuple[_Side, _Side],
    nodes: Mapping[LineKey, tuple[NodeChange, ...]],
) -> SideRow:
    old, new = sides[0].line(before), sides[1].line(after)
    change = (new.weights if new else Weights()).minus(old.weights if old else Weights())
    changed = nodes.get((before, after), ())
    if old is None or new is None:
        return SideRow("removed" if new is None else "added", old, new, change, changed)
    differs = old.line.text != new.line.text or old.breaks != new.breaks or change != Weights() or changed
    return SideRow("changed" if differs else "same", old, new, change, changed)


def _in_order(pairs: LinePairs) -> Iterator[LineKey]:
    """Yield the positions of each row: the new lines in order, gone lines before the next one that stayed."""
    partners = set(pairs.partner.values())
    gone = sorted(position for position in pairs.old if position not in partners)
    for after in sorted(pairs.new):
        before = pairs.partner.get(after)
        while gone and before is not None and gone[0][0] == before[0] and gone[0] < before:
            yield gone.pop(0), None
        yield before, after
    yield from ((position, None) for position in gone)
