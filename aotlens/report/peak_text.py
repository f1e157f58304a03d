"""Where memory peaks and what is alive there, as text.

Invariant: the rows account for every byte of the peak; what is cut from the list is counted in its last line.
"""

import re
from collections.abc import Iterator

from rich.text import Text

from aotlens.report.fold import Fold, fold, in_layer
from aotlens.report.layout import Row, heading, paragraph, table
from aotlens.report.places import place, text_of
from aotlens.report.records import LiveValue, Memory
from aotlens.report.summary import counted, human_bytes

ROWS = 10
_DETAIL = " " * 6
_NUMBERED = re.compile(r"_\d+$")


def memory_lines(memory: Memory, width: int) -> Iterator[Text]:
    """The peak with its place, then what is alive there, the largest first, identical layers folded."""
    if not memory.curve:
        return
    note = f"{human_bytes(memory.peak_bytes)} at the peak: {memory.peak_phase}, {memory.peak_node}"
    if 0 < memory.forward_nodes < len(memory.curve):
        note += f"; {human_bytes(memory.held_bytes)} between forward and backward"
    yield heading("Memory", note)
    if memory.peak_span is not None:
        where = f"{place(memory.peak_span)}  {text_of(memory.peak_span)}"
        yield from paragraph(where, width, "  ", "dim")
    folds = alive_folds(memory)
    rows = [_row(group, width) for group in folds[:ROWS]]
    yield from table(rows, width, frozenset({0}))
    if rest := folds[ROWS:]:
        values = sum(len(group.items) for group in rest)
        size = human_bytes(sum(map(total_bytes, rest)))
        text = f"and {counted(values, 'smaller value')}, {size} together (all are in --format json)"
        yield from paragraph(text, width, "  ", "dim")


def alive_folds(memory: Memory) -> list[Fold[LiveValue]]:
    """What is alive at the peak, identical layers as one, the largest total first."""
    folds = fold(memory.live_at_peak, _label, _same)
    return sorted(folds, key=lambda group: -total_bytes(group))


def total_bytes(group: Fold[LiveValue]) -> int:
    return sum(value.bytes for value in group.items)


def _same(value: LiveValue) -> tuple[object, ...]:
    """What identical layers share: all that a row shows."""
    return value.bytes, value.kind, value.span, value.made_in, value.last_in, value.last_span


def _label(value: LiveValue) -> str:
    """`blocks.3: gelu in self.mlp(x)`, or the user's name where it names a tensor of theirs."""
    operator = _NUMBERED.sub("", value.node)
    if value.name and value.kind in ("gradient", "result"):
        return value.name
    text = text_of(value.span) if value.span else ""
    return in_layer(value.layer, f"{operator} in {text}" if text else value.name or operator)


def _row(group: Fold[LiveValue], width: int) -> Row:
    first = group.first
    each = f"{group.times}, {human_bytes(first.bytes)} each" if group.times else ""
    cells = (human_bytes(total_bytes(group)), each, first.kind, group.label)
    detail = tuple(paragraph(_life(first), width, _DETAIL, "dim"))
    return Row(cells, ("yellow", "", "", "cyan"), detail, clip=True)


def _life(value: LiveValue) -> str:
    """`model.py:23:8  from the forward until the backward of line 24`."""
    where = f"{place(value.span)}  " if value.span else ""
    if value.kind == "working memory":
        return f"{where}while the operator runs"
    if value.last_in is None:
        return f"{where}from the {value.made_in} on, the caller's"
    line = f"line {value.last_span.line}" if value.last_span is not None else ""
    if value.last_in == value.made_in:
        return f"{where}in the {value.made_in}" + (f", until {line}" if line else "")
    return f"{where}from the {value.made_in} until the {value.last_in}" + (f" of {line}" if line else "")
