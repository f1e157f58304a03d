"""The ledgers of inputs and outputs for two screens: what is more than read, alike ones as one row.

Invariant: every input is accounted for: the heading counts them all.
"""

from collections.abc import Iterator, Sequence

from rich.text import Text

from aotlens.report.layout import Page, Row, clipped, heading, paragraph, table
from aotlens.report.ledger import (
    DETAIL,
    aliasing,
    handling,
    is_changed,
    is_told,
    kind_counts,
    output_count,
    tensor_text,
)
from aotlens.report.places import place
from aotlens.report.records import Input, Output, Site, Target
from aotlens.report.summary import counted, human_bytes

__all__ = ["input_summary", "output_summary"]

_FEW_INPUTS = 8
_FEW_OUTPUTS = 6


def input_summary(target: Target, page: Page) -> Iterator[Text]:
    """Inputs that are written or aliased, then the arguments; parameters that are only read are counted."""
    yield heading("Inputs", kind_counts(target))
    groups: dict[object, list[Input]] = {}
    for entry in target.inputs:
        if is_told(entry):
            groups.setdefault(_alike(target, entry), []).append(entry)
    ordered = sorted(groups.values(), key=lambda group: not is_changed(group[0]))
    few = page.most(0, _FEW_INPUTS)
    rows = [_input_row(target, group, page) for group in ordered[:few]]
    yield from table(rows, page.width, frozenset({0}))
    rest = sum(map(len, ordered[few:]))
    if rest:
        yield from paragraph(f"and {rest} more ({page.rest})", page.width, "  ", "dim")


def _alike(target: Target, entry: Input) -> object:
    """Equal for inputs that one row can stand for: a buffer of each batch norm, which is changed alike."""
    if entry.kind not in ("Parameter", "Buffer"):
        return entry.index
    return entry.kind, entry.name.rpartition(".")[2], handling(target, entry)


def _input_row(target: Target, group: Sequence[Input], page: Page) -> Row:
    first = group[0]
    sizes = [entry.tensor.bytes for entry in group if entry.tensor and entry.tensor.bytes is not None]
    alike = len(group) > 1
    cells = (
        str(first.index),
        f"{first.name} and {len(group) - 1} more" if alike else first.name,
        human_bytes(sum(sizes)) if alike else tensor_text(first.tensor),
        handling(target, first),
    )
    changed = is_changed(first)
    below = tuple(_why(first.reason, first.sites, page)) if changed else ()
    return Row(cells, ("dim", "cyan", "", "yellow" if changed else ""), below)


def _why(reason: str, sites: Sequence[Site], page: Page) -> Iterator[Text]:
    """The reason and the first place, in one line each."""
    if reason:
        yield Text(DETAIL).append(clipped(reason, page.width - len(DETAIL)), "dim")
    for site in sites[:1]:
        more = f"  and {counted(len(sites) - 1, 'more place')}" if len(sites) > 1 else ""
        text = clipped(f"{place(site.span)}  {site.text}{more}", page.width - len(DETAIL))
        yield Text(DETAIL).append(text, "dim")


def output_summary(target: Target, page: Page) -> Iterator[Text]:
    """Outputs by what they are; those that alias something come first."""
    yield heading("Outputs", output_count(target))
    groups: dict[object, list[Output]] = {}
    for entry in target.outputs:
        key = entry.index if entry.base else (tensor_text(entry.tensor), aliasing(target, entry))
        groups.setdefault(key, []).append(entry)
    ordered = sorted(groups.values(), key=lambda group: group[0].base is None)
    few = page.most(0, _FEW_OUTPUTS)
    rows = [_output_row(target, group, page) for group in ordered[:few]]
    yield from table(rows, page.width, frozenset({0}))
    rest = sum(map(len, ordered[few:]))
    if rest:
        yield from paragraph(f"and {rest} more ({page.rest})", page.width, "  ", "dim")


def _output_row(target: Target, group: Sequence[Output], page: Page) -> Row:
    first = group[0]
    name = f"{first.name} and {len(group) - 1} more" if len(group) > 1 else first.name
    below = tuple(_why(first.reason, first.sites, page)) if first.base else ()
    cells = (str(first.index), name, tensor_text(first.tensor), aliasing(target, first))
    return Row(cells, ("dim", "cyan", "", "yellow" if first.base else ""), below)
