"""The difference of two reports as text."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from aotlens.compare.difference import NodeChange, ReportChange, TargetChange
from aotlens.compare.words import differing_totals, line_label, line_weights, node_text, saved_text
from aotlens.model.report import Target
from aotlens.render.text.diagnostics import diagnostic_lines
from aotlens.render.text.layout import Row, paragraph, rule, table
from aotlens.render.text.step_difference import step_difference_lines
from aotlens.view.quantities import multiplied, target_summary
from aotlens.view.shorten import end_cut

__all__ = ["difference_lines"]

MOST_NODES = 12
"""Of one line; the JSON has them all."""
_INDENT = " " * 6
_SHORTEST_NOTE = 24
"""Columns that a note has beside an operator of any length, even if the line is then wider than the page."""
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}


def difference_lines(change: ReportChange, width: int) -> Iterator[Text]:
    """Every target that differs, line by line; the others in one line for each name, at the top."""
    if change.step is not None:
        yield from step_difference_lines(change.step, width)
    equal = Counter(target.qualname for target in change.targets if target.is_empty)
    for name, count in equal.items():
        times = f" {multiplied(count)}" if count > 1 else ""
        yield Text.assemble((name, "bold"), times, ": no difference")
    for target in change.targets:
        if not target.is_empty:
            yield from _target_lines(target, width)
            yield Text()
    for word, style, targets in (("new", "green", change.added), ("gone", "red", change.removed)):
        yield from (_only_in_one(target, word, style) for target in targets)


def _only_in_one(target: Target, word: str, style: str) -> Text:
    """Return the line for a target that one of the reports lacks."""
    return Text.assemble((target.qualname, "bold"), ": ", (word, style), f"  {target_summary(target)}")


def _target_lines(target: TargetChange, width: int) -> Iterator[Text]:
    yield rule(target.qualname, "", width)
    rows = [
        Row(
            (total.name, f"{total.before} → {total.after}", total.change),
            ("cyan", "", "yellow" if total.is_more else "green"),
        )
        for total in differing_totals(target)
    ]
    yield from table(rows, width)
    if target.saved:
        yield Text("  saved for the backward", "cyan")
    for saved in target.saved[:MOST_NODES]:
        yield Text(f"      {saved_text(saved)}", "dim")
    if len(target.saved) > MOST_NODES:
        yield Text(f"      … and {len(target.saved) - MOST_NODES} more", "dim")
    steps = [f"+ {name}" for name in target.steps_added] + [f"− {name}" for name in target.steps_removed]
    if steps:
        yield from paragraph(f"wrapper: {', '.join(steps)}", width, "  ")
    for row in target.lines:
        line = row.after or row.before
        yield Text()
        yield Text.assemble("  ", (line_label(row), "bold"), f"  {line.text if line else ''}")
        yield from paragraph(" · ".join(line_weights(row.change)), width, "      ", "yellow")
        yield from _node_lines(row.nodes, width)
    if target.elsewhere:
        yield Text()
        yield Text("  added by the compiler", "bold")
        yield from _node_lines(target.elsewhere, width)
    for word, findings in (("new", target.findings_new), ("gone", target.findings_gone)):
        for finding in findings:
            yield Text()
            first, *rest = diagnostic_lines(finding, width)
            yield Text.assemble((f"{word} ", "bold"), first)
            yield from rest if word == "new" else ()  # of what is gone, the source is not what it was


def _node_lines(nodes: Sequence[NodeChange], width: int) -> Iterator[Text]:
    """Yield the first operators that differ, each with its change or the reason why it was added."""
    for change in nodes[:MOST_NODES]:
        text = node_text(change)
        room = max(_SHORTEST_NOTE, width - len(_INDENT) - len(text))
        note = end_cut(f"  # {change.what}", room) if change.what else ""
        yield Text.assemble(_INDENT, (text, _STYLES[change.kind]), (note, "dim"))
    if len(nodes) > MOST_NODES:
        yield Text(f"      … and {len(nodes) - MOST_NODES} more", "dim")
