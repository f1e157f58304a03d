"""Two reports side by side: rows of lines, and what changed in a target, for TUI and page."""

from collections.abc import Iterator, Sequence

from aotlens.compare.difference import NodeChange
from aotlens.compare.side_by_side import RowKind, SideBySide, SideLine, SideRow, TargetPair
from aotlens.compare.step import StepChange, StepPart, part_cells, step_gpu_text, step_peak_text
from aotlens.compare.words import differing_totals, line_facts, line_weights, node_text, saved_text
from aotlens.model.report import Diagnostic
from aotlens.model.spans import file_name, shown_path
from aotlens.view.quantities import counted
from aotlens.view.tabs.tables.rows import Cells, Column, LazyRows, Line, Link, Listing, Part

__all__ = [
    "changed_rows",
    "pair_summary",
    "side_details",
    "side_listing",
    "side_names",
    "step_listing",
    "step_peak_lines",
    "summary_lines",
]

MARKS: dict[RowKind, tuple[str, str]] = {
    "same": (" ", "dim"),
    "changed": ("±", "warning"),
    "added": ("+", "added"),
    "removed": ("−", "removed"),
}
PRESENCE = {"both": "", "added": "only on the right", "removed": "only on the left"}
MOST = 12
"""Changed operators or values that are listed before the rest is counted."""
NOTHING = "no line differs"


def side_names(comparison: SideBySide, pair: TargetPair) -> tuple[str, str]:
    """Return the name of each side, with its GPU where one was requested."""
    old, new = (
        f"{name} on {gpu}" if gpu else name for name, gpu in zip(comparison.names, pair.gpus, strict=True)
    )
    return old, new


def changed_rows(pair: TargetPair) -> tuple[SideRow, ...]:
    return tuple(row for row in pair.rows if row.kind != "same")


def pair_summary(pair: TargetPair) -> str:
    """Return `3 lines differ; saved +8.0 KiB`, or on which side a target is alone."""
    if PRESENCE[pair.presence]:
        return PRESENCE[pair.presence]
    changed = len(changed_rows(pair))
    words = [f"{counted(changed, 'line')} {'differs' if changed == 1 else 'differ'}" if changed else NOTHING]
    words += [f"{total.name} {total.change}" for total in differing_totals(pair.change)]
    return " · ".join(words)


def side_listing(rows: Sequence[SideRow], names: tuple[str, str]) -> Listing:
    """Return both sides of each row: line, text and costs; then what changed."""
    homes = _home(row.before for row in rows), _home(row.after for row in rows)

    def cells(row: SideRow) -> Cells:
        mark, role = MARKS[row.kind]
        quiet = "dim" if row.kind == "same" else ""
        return (
            Part(mark, role),
            Part(_number(row.before, homes[0]), "place"),
            Part(row.before.line.text if row.before else "", quiet if row.after else "removed"),
            Part(_facts(row.before), "saved"),
            Part(_number(row.after, homes[1]), "place"),
            Part(row.after.line.text if row.after else "", quiet if row.before else "added"),
            Part(_facts(row.after), "saved"),
            Part(", ".join(_changes(row)), role),
        )

    def text(row: SideRow) -> str:
        return " ".join(cell.text for cell in cells(row) if isinstance(cell, Part))

    columns = (
        Column("", widest=1, narrowest=1),
        Column("", widest=14, narrowest=3, align="right"),
        Column(names[0], narrowest=20, grows=True),
        Column("costs", widest=32, narrowest=24, drop=2),
        Column("", widest=14, narrowest=3, align="right"),
        Column(names[1], narrowest=20, grows=True),
        Column("costs", widest=32, narrowest=24, drop=1),
        Column("change", widest=44, narrowest=16, drop=3),
    )
    return Listing(columns, LazyRows(tuple(rows), _key, cells, text, lambda _: Link()), NOTHING)


def _home(sides: Iterator[SideLine | None]) -> str | None:
    return next((side.line.file for side in sides if side is not None), None)


def _key(row: SideRow) -> str:
    """Return `model.py:41`; a line that is gone has a sign after it."""
    side = row.after or row.before
    assert side is not None  # since a row has one side at least
    return f"{_location(side)}{'' if row.after else '−'}"


def _location(side: SideLine) -> str:
    return f"{shown_path(side.line.file)}:{side.line.number}"


def _number(side: SideLine | None, home: str | None) -> str:
    if side is None:
        return ""
    line = side.line
    return str(line.number) if line.file == home else f"{file_name(line.file)}:{line.number}"


def _facts(side: SideLine | None) -> str:
    if side is None:
        return ""
    breaks = [counted(side.breaks, "graph break")] if side.breaks else []
    return " · ".join((*breaks, *line_facts(side.weights)))


def _changes(row: SideRow) -> Iterator[str]:
    """Yield what changed; breaks are not in the weights."""
    breaks = (row.after.breaks if row.after else 0) - (row.before.breaks if row.before else 0)
    if breaks:
        yield f"{'+' if breaks > 0 else '−'}{counted(abs(breaks), 'graph break')}"
    yield from line_weights(row.change)
    if row.kind == "changed" and not (breaks or any(line_weights(row.change))):
        yield "other operators" if row.nodes else "other text"


def side_details(row: SideRow, names: tuple[str, str]) -> Iterator[Line]:
    """Yield both lines in full, with their costs, and the operators that changed."""
    for name, side in zip(names, (row.before, row.after), strict=True):
        if side is None:
            yield Line((Part(f"{name}  ", "dim"), Part("no such line", "dim")))
            continue
        yield Line((Part(f"{name}  ", "dim"), Part(f"{_location(side)}  ", "place"), Part(side.line.text)))
        if facts := _facts(side):
            yield Line((Part(f"    {facts}", "saved"),))
    if changes := ", ".join(_changes(row)):
        yield Line((Part("change  ", "dim"), Part(changes, MARKS[row.kind][1])), wrap=True)
    yield from _node_lines(row.nodes)


def _node_lines(nodes: Sequence[NodeChange]) -> Iterator[Line]:
    roles = {"added": "added", "removed": "removed", "changed": "warning"}
    for node in nodes[:MOST]:
        note = f"  # {node.what}" if node.what else ""
        yield Line((Part(f"    {node_text(node)}", roles[node.kind]), Part(note, "dim")), wrap=True)
    if len(nodes) > MOST:
        yield Line((Part(f"    … and {len(nodes) - MOST} more", "dim"),))


def summary_lines(pair: TargetPair, names: tuple[str, str]) -> Iterator[Line]:
    """Yield the totals, saved values, wrapper steps, diagnostics, and operators of no line that changed."""
    yield Line(
        (Part(f"{names[0]} → {names[1]}", "heading"), Part(f"  {pair_summary(pair)}", "dim")), wrap=True
    )
    for total in differing_totals(pair.change):
        amounts = Part(f"{total.before:>12} → {total.after:<12}")
        role = "warning" if total.is_more else "ok"
        yield Line((Part(f"  {total.name:<24}", "dim"), amounts, Part(total.change, role)))
    change = pair.change
    if change.saved:
        yield Line((Part("Saved for the backward", "heading"),))
    yield from (Line((Part(f"  {saved_text(value)}"),), wrap=True) for value in change.saved[:MOST])
    if len(change.saved) > MOST:
        yield Line((Part(f"  … and {len(change.saved) - MOST} more", "dim"),))
    steps = [f"+ {name}" for name in change.steps_added] + [f"− {name}" for name in change.steps_removed]
    if steps:
        yield Line((Part("Wrapper  ", "heading"), Part(", ".join(steps))), wrap=True)
    yield from _finding_lines("new", change.findings_new)
    yield from _finding_lines("gone", change.findings_gone)
    if change.elsewhere:
        yield Line((Part("Operators of no line", "heading"),))
        yield from _node_lines(change.elsewhere)


def _finding_lines(word: str, findings: Sequence[Diagnostic]) -> Iterator[Line]:
    for finding in findings:
        role = finding.severity if word == "new" else "ok"
        yield Line((Part(f"{word} {finding.code}  ", role), Part(finding.message)), wrap=True)


# Two steps of `aotlens fit`.

STEP_COLUMNS = (
    Column("change", widest=12, align="right", largest_first=True),
    Column("before → after", widest=28),
    Column("line", widest=30),
    Column("", narrowest=20, grows=True),
)


def step_peak_lines(step: StepChange) -> Iterator[Line]:
    """Yield the peak of both steps, and whether they fit their GPU."""
    role = "warning" if step.after_bytes > step.before_bytes else "ok"
    yield Line((Part("peak  ", "dim"), Part(step_peak_text(step), role)), wrap=True)
    if gpu := step_gpu_text(step):
        yield Line((Part(gpu),), wrap=True)


def step_listing(parts: Sequence[StepPart]) -> Listing:
    """Return the kinds or the lines whose bytes at the peak differ, the largest change first."""

    def cells(part: StepPart) -> Cells:
        change, before_after, line, name = part_cells(part)
        role = "warning" if part.change_bytes > 0 else "ok"
        return Part(change, role, part.change_bytes), Part(before_after), Part(line, "place"), Part(name)

    def key(part: StepPart) -> str:
        return f"{part.line} {part.name}".strip()

    return Listing(STEP_COLUMNS, LazyRows(tuple(parts), key, cells, key, lambda _: Link()), NOTHING)
