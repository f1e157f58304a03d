"""The memory peak and the values alive there, as text.

Invariant: the rows account for every byte of the peak; the last line of a shortened list counts the rest.
"""

from collections.abc import Iterator

from rich.text import Text

from aotlens.model.report import LiveValue, Memory
from aotlens.model.spans import location, text_of
from aotlens.render.text.layout import Page, Row, heading, paragraph, table
from aotlens.view.fold import FUSED, Fold, alive_folds, lifetime, total_bytes
from aotlens.view.names import node_in_phase
from aotlens.view.quantities import counted, human_bytes

ROWS = 10
FEW_ROWS = 6
STYLES = ("yellow", "", "", "cyan")
_DETAIL = " " * 6


def memory_lines(memory: Memory, page: Page) -> Iterator[Text]:
    """Yield the peak with its node and line, then the values alive there, the largest first, identical layers
    folded."""
    if not memory.curve:
        return
    width = page.width
    note = (
        f"{human_bytes(memory.peak_bytes)} at the peak: {node_in_phase(memory.peak_node, memory.peak_phase)}"
    )
    if 0 < memory.forward_nodes < len(memory.curve):  # there is a backward
        note += f"; {human_bytes(memory.held_bytes)} between forward and backward"
    yield heading("Memory", note)
    if memory.fused:
        yield from paragraph(FUSED, width, "  ", "dim")
    if memory.peak_span is not None:
        where = f"{location(memory.peak_span)}  {text_of(memory.peak_span)}"
        yield from paragraph(where, width, "  ", "dim")
    folds = alive_folds(memory)
    worth = page.least(memory.peak_bytes)
    large = [group for group in folds if total_bytes(group) >= worth][: page.most(ROWS, FEW_ROWS)]
    rows = [_row(group, page) for group in large]
    yield from table(rows, width, frozenset({0}))
    if rest := folds[len(large) :]:
        values = sum(len(group.items) for group in rest)
        size = human_bytes(sum(map(total_bytes, rest)))
        text = f"and {counted(values, 'smaller value')}, {size} together ({page.rest})"
        yield from paragraph(text, width, "  ", "dim")


def _row(group: Fold[LiveValue], page: Page) -> Row:
    first = group.first
    each = f"{group.times}, {human_bytes(first.bytes)} each" if group.times else ""
    cells = (human_bytes(total_bytes(group)), each, first.kind, group.label)
    if not page.is_full:
        return Row(cells, STYLES, clip=True)
    where = f"{location(first.span)}  " if first.span else ""
    alive = lifetime(first, first.span.file if first.span else page.home)
    detail = tuple(paragraph(f"{where}{alive}", page.width, _DETAIL, "dim"))
    return Row(cells, STYLES, detail, clip=True)
