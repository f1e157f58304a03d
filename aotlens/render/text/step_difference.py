"""The difference of two results of `aotlens fit` as text."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from aotlens.compare.step import StepChange, StepPart, part_cells, step_gpu_text, step_peak_text
from aotlens.render.text.layout import Row, heading, rule, table

__all__ = ["step_difference_lines"]

MOST_ROWS = 12
"""Of one table; the JSON has them all."""
CHANGE_COLUMN = frozenset({0})


def step_difference_lines(change: StepChange, width: int) -> Iterator[Text]:
    """Yield the peaks, then kinds and lines that differ."""
    if change.is_empty:
        yield Text.assemble(("step memory", "bold"), ": no difference")
        return
    yield rule("step memory", "", width)
    is_more = change.after_bytes > change.before_bytes
    yield Text.assemble("  peak  ", (step_peak_text(change), "yellow" if is_more else "green"))
    if gpu := step_gpu_text(change):
        yield Text(f"  {gpu}")
    for title, parts in (("by kind", change.kinds), ("by line", change.lines)):
        if parts:
            yield Text()
            yield heading(f"  {title}", "bytes at the peak")
            yield from _rows(parts, width)


def _rows(parts: Sequence[StepPart], width: int) -> Iterator[Text]:
    rows = [
        Row(part_cells(part), ("yellow" if part.change_bytes > 0 else "green", "", "cyan"))
        for part in parts[:MOST_ROWS]
    ]
    yield from table(rows, width, CHANGE_COLUMN)
    if len(parts) > MOST_ROWS:
        yield Text(f"      … and {len(parts) - MOST_ROWS} more", "dim")
