"""The difference of two reports as Markdown, for a comment on a pull request.  Standard library only."""

from collections.abc import Iterator, Sequence

from aotlens.compare.difference import NodeChange, ReportChange, TargetChange
from aotlens.compare.step import StepChange, part_cells, step_gpu_text, step_peak_text
from aotlens.compare.words import differing_totals, line_label, line_weights, node_text, saved_text
from aotlens.model.report import Diagnostic
from aotlens.model.spans import location
from aotlens.view.quantities import target_summary

__all__ = ["difference_markdown"]

MOST_PARTS = 12
"""Rows of one table of the step; the JSON has them all."""


def difference_markdown(change: ReportChange, over: Sequence[Diagnostic]) -> str:
    """Return the totals, then lines and nodes in a folded section; exceeded budgets come first."""
    return "\n".join(_lines(change, over)) + "\n"


def _lines(change: ReportChange, over: Sequence[Diagnostic]) -> Iterator[str]:
    yield "### aotlens"
    yield ""
    for finding in over:
        yield f"- :x: **{finding.code}** {_escaped(finding.message)}"
    if over:
        yield ""
    if change.is_empty:
        yield "No difference."
    if change.step is not None and not change.step.is_empty:
        yield from _step(change.step)
    for target in change.targets:
        if not target.is_empty:
            yield from _target(target)
    for word, targets in (("new", change.added), ("gone", change.removed)):
        yield from (f"- `{target.qualname}` is {word}: {target_summary(target)}" for target in targets)


def _step(change: StepChange) -> Iterator[str]:
    yield f"**Step memory**: {step_peak_text(change)}"
    yield ""
    if gpu := step_gpu_text(change):
        yield gpu
        yield ""
    for title, parts in (("kind", change.kinds), ("expression | line", change.lines)):
        if not parts:
            continue
        yield f"| change | before → after | {title} |"
        yield f"|---:|---|---|{'---|' * title.count('|')}"
        for part in parts[:MOST_PARTS]:
            difference, sizes, line, name = map(_escaped, part_cells(part))
            yield f"| {difference} | {sizes} | {name} |{f' {line} |' if line else ''}"
        yield ""


def _target(target: TargetChange) -> Iterator[str]:
    yield f"**`{target.qualname}`**"
    yield ""
    rows = tuple(differing_totals(target))
    if rows:
        yield "| | before | after | |"
        yield "|---|---:|---:|---:|"
        yield from (f"| {row.name} | {row.before} | {row.after} | {row.change} |" for row in rows)
        yield ""
    yield from (f"- wrapper: + `{name}`" for name in target.steps_added)
    yield from (f"- wrapper: − `{name}`" for name in target.steps_removed)
    yield from (f"- saved: {_escaped(saved_text(item))}" for item in target.saved)
    for word, findings in (("new", target.findings_new), ("gone", target.findings_gone)):
        for item in findings:
            where = f" ({location(item.span)})" if item.span is not None else ""
            yield f"- {word}: **{item.code}** {_escaped(item.message)}{where}"
    if target.lines or target.elsewhere:
        yield from _details(target)
    yield ""


def _details(target: TargetChange) -> Iterator[str]:
    yield "<details><summary>By line</summary>"
    yield ""
    for row in target.lines:
        line = row.after or row.before
        code = f" `{line.text}`" if line is not None and line.text and "`" not in line.text else ""
        weights = " · ".join(line_weights(row.change))
        yield f"- {line_label(row)}{code}{f': {weights}' if weights else ''}"
        yield from _nodes(row.nodes)
    if target.elsewhere:
        yield "- added by the compiler"
        yield from _nodes(target.elsewhere)
    yield ""
    yield "</details>"


def _nodes(nodes: Sequence[NodeChange]) -> Iterator[str]:
    for change in nodes:
        yield f"  - `{node_text(change)}`{f' {_escaped(change.what)}' if change.what else ''}"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")
