"""The ledgers of inputs and outputs as text, in full and as a summary of at most two screens."""

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from aotlens.model.report import Guard, Input, Output, Site, SpecialOperator, Target
from aotlens.model.spans import location
from aotlens.model.target_facts import SideEffect
from aotlens.model.target_records import BUILT_IN
from aotlens.render.text.layout import Page, Row, heading, paragraph, table
from aotlens.view.fold import Fold, fold
from aotlens.view.ledger import (
    aliasing,
    handling,
    is_changed,
    is_notable,
    kind_counts,
    kind_name,
    output_count,
    tensor_text,
)
from aotlens.view.quantities import counted, human_bytes
from aotlens.view.shorten import end_cut

__all__ = [
    "guard_lines",
    "input_lines",
    "input_summary",
    "operator_lines",
    "output_lines",
    "output_summary",
    "side_effect_lines",
    "site_lines",
]

DETAIL = " " * 6
FEW = 5
"""Rows of a list on a short page."""


def input_lines(target: Target, width: int) -> Iterator[Text]:
    """Yield one row for each notable input; the rest folded."""
    yield heading("Inputs", kind_counts(target))
    notable = [entry for entry in target.inputs if is_notable(entry)]
    quiet = [entry for entry in target.inputs if not is_notable(entry)]
    rows = [
        Row(
            (str(entry.index), entry.name, tensor_text(entry.tensor), handling(target, entry)),
            ("dim", "cyan", "", "yellow" if entry.mutation_type != "not_mutated" else ""),
            tuple(_details(entry.reason if is_changed(entry) else "", entry.sites, width)),
        )
        for entry in notable
    ]
    rows += [_folded_row(group) for group in _fold_quiet(quiet)]
    yield from table(rows, width, frozenset({0}))


def output_lines(target: Target, width: int) -> Iterator[Text]:
    """One row for each output."""
    yield heading("Outputs", output_count(target))
    rows = [
        Row(
            (str(entry.index), entry.name, tensor_text(entry.tensor), aliasing(target, entry)),
            ("dim", "cyan", "", "yellow" if entry.base else ""),
            tuple(_details(entry.reason if entry.base else "", entry.sites, width)),
        )
        for entry in target.outputs
    ]
    yield from table(rows, width, frozenset({0}))


def side_effect_lines(target: Target, page: Page) -> Iterator[Text]:
    """Yield the side effects of the function; nothing where it has none."""
    if not target.side_effects:
        return
    yield heading("Side effects", f"{len(target.side_effects)} on each call")
    shown = page.first(target.side_effects, FEW)
    yield from table(
        [_pair((row.name, row.handling), "yellow", row, page.width) for row in shown], page.width
    )
    yield from _rest(len(target.side_effects) - len(shown), page)


def _pair(cells: tuple[str, str], style: str, row: SideEffect | SpecialOperator, width: int) -> Row:
    """Return a name and a word about it, with reason and location below."""
    return Row(cells, ("cyan", style), tuple(_details(row.reason, row.sites, width)))


def guard_lines(target: Target, page: Page) -> Iterator[Text]:
    """Yield the conditions on sizes, by the line that causes them, and the plain values that are
    constants."""
    values = [guard for guard in target.guards if guard.reason == BUILT_IN]
    sizes = [guard for guard in target.guards if guard.reason != BUILT_IN]
    if sizes:
        yield heading("Guards", f"{counted(len(sizes), 'condition')} on sizes")
        shown = page.first(_size_rows(sizes, page.width), FEW)
        yield from table(shown, page.width)
        yield from _rest(len(sizes) - len(shown), page)
    if values:
        yield heading("Constants", f"{counted(len(values), 'value')}; another value recompiles")
        rows = [
            Row((guard.expression, location(guard.span) if guard.span else ""), ("cyan", "dim"))
            for guard in page.first(values, FEW)
        ]
        yield from table(rows, page.width)
        yield from _rest(len(values) - len(rows), page)


def _size_rows(guards: list[Guard], width: int) -> list[Row]:
    """Return a row per condition; those with one reason and location share the details below the last."""
    grouped: dict[tuple[str, tuple[Site, ...]], list[str]] = {}
    for guard in guards:
        grouped.setdefault((guard.reason, guard.sites), []).append(guard.expression)
    rows = []
    for (reason, sites), expressions in grouped.items():
        rows += [Row((expression,), ("cyan",)) for expression in expressions[:-1]]
        details = (*paragraph(reason, width, DETAIL, "dim"), *site_lines(sites, DETAIL))
        rows.append(Row((expressions[-1],), ("cyan",), details))
    return rows


def operator_lines(target: Target, page: Page) -> Iterator[Text]:
    """Yield effects and higher-order operators; nothing where there are none."""
    if not target.operators:
        return
    yield heading("Effects and higher-order operators", str(len(target.operators)))
    shown = page.first(target.operators, FEW)
    yield from table([_pair((row.op, row.phase), "dim", row, page.width) for row in shown], page.width)
    yield from _rest(len(target.operators) - len(shown), page)


def _rest(count: int, page: Page) -> Iterator[Text]:
    if count:
        yield from paragraph(f"and {count} more ({page.rest})", page.width, "  ", "dim")


def site_lines(sites: Iterable[Site], indent: str) -> Iterator[Text]:
    """`file:line:col  text` for each site, once where several operators are at one."""
    for span, text in dict.fromkeys((site.span, site.text) for site in sites):
        yield Text.assemble(indent, (location(span), "dim"), "  ", text)


def _details(reason: str, sites: tuple[Site, ...], width: int) -> Iterator[Text]:
    yield from paragraph(reason, width, DETAIL, "dim")
    yield from site_lines(sites, DETAIL)


def _fold_quiet(entries: list[Input]) -> tuple[Fold[Input], ...]:
    return fold(
        entries,
        name=lambda entry: entry.name,
        same=lambda entry: (entry.kind, tensor_text(entry.tensor), entry.requires_grad),
    )


def _folded_row(group: Fold[Input]) -> Row:
    first = group.first
    what = f"read, {kind_name(first.kind)}"
    sizes = [entry.tensor.bytes for entry in group.items if entry.tensor and entry.tensor.bytes is not None]
    if group.times:
        what = f"{what} {group.times}, {human_bytes(max(sizes, default=0))} each"
    index = str(first.index) if not group.times else "…"
    return Row((index, group.label, tensor_text(first.tensor), what), ("dim", "", "", "dim"))


_FEW_INPUTS = 8
_FEW_OUTPUTS = 6


def input_summary(target: Target, page: Page) -> Iterator[Text]:
    """Yield, for a short page, inputs that are written or aliased, then the arguments; parameters that are
    only read are counted."""
    yield heading("Inputs", kind_counts(target))
    groups: dict[object, list[Input]] = {}
    for entry in target.inputs:
        if is_notable(entry):
            groups.setdefault(_row_key(target, entry), []).append(entry)
    ordered = sorted(groups.values(), key=lambda group: not is_changed(group[0]))
    few = page.few(_FEW_INPUTS)
    rows = [_input_row(target, group, page) for group in ordered[:few]]
    yield from table(rows, page.width, frozenset({0}))
    yield from _rest(sum(map(len, ordered[few:])), page)


def _row_key(target: Target, entry: Input) -> object:
    """Return equal values for inputs that share a row: a buffer of each batch norm that is changed alike."""
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
    """Yield the reason and the first location, in one line each."""
    if reason:
        yield Text(DETAIL).append(end_cut(reason, page.width - len(DETAIL)), "dim")
    for site in sites[:1]:
        more = f"  and {counted(len(sites) - 1, 'more location')}" if len(sites) > 1 else ""
        text = end_cut(f"{location(site.span)}  {site.text}{more}", page.width - len(DETAIL))
        yield Text(DETAIL).append(text, "dim")


def output_summary(target: Target, page: Page) -> Iterator[Text]:
    """Yield, for a short page, outputs by their kind; those that alias something come first."""
    yield heading("Outputs", output_count(target))
    groups: dict[object, list[Output]] = {}
    for entry in target.outputs:
        key = entry.index if entry.base else (tensor_text(entry.tensor), aliasing(target, entry))
        groups.setdefault(key, []).append(entry)
    ordered = sorted(groups.values(), key=lambda group: group[0].base is None)
    few = page.few(_FEW_OUTPUTS)
    rows = [_output_row(target, group, page) for group in ordered[:few]]
    yield from table(rows, page.width, frozenset({0}))
    yield from _rest(sum(map(len, ordered[few:])), page)


def _output_row(target: Target, group: Sequence[Output], page: Page) -> Row:
    first = group[0]
    name = f"{first.name} and {len(group) - 1} more" if len(group) > 1 else first.name
    below = tuple(_why(first.reason, first.sites, page)) if first.base else ()
    cells = (str(first.index), name, tensor_text(first.tensor), aliasing(target, first))
    return Row(cells, ("dim", "cyan", "", "yellow" if first.base else ""), below)
