"""The ledgers of inputs and outputs as text.

Invariant: every input and output is accounted for: what has nothing to tell is folded into one row that
counts it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.text import Text

from aotlens.report.fold import Fold, fold
from aotlens.report.layout import Page, Row, heading, paragraph, table
from aotlens.report.left_records import Left
from aotlens.report.places import place
from aotlens.report.records import (
    BUILT_IN,
    Base,
    Guard,
    Input,
    Output,
    Site,
    SpecialOperator,
    Target,
    Tensor,
)
from aotlens.report.summary import counted, human_bytes

KINDS = {
    "Parameter": "parameter",
    "Buffer": "buffer",
    "UserInput": "argument",
    "SymInt": "size",
    "Constant": "constant",
    "OutsideTensor": "from outside",
}
"""The slots' names in the user's words."""

OUTPUTS = {
    "non_alias": "new",
    "alias_of_input": "view of {base}",
    "is_input": "is {base}",
    "alias_of_intermediate_save_as_output": "view of {base}",
    "alias_of_intermediate": "view of {base}",
    "alias_of_intermediate_base_is_user_output": "view of {base}",
    "unsafe_view_alias": "new (a view whose base stays inside)",
    "custom_function_view": "view of {base} by a custom function",
}
"""What each output type means, in the user's words."""

DETAIL = " " * 6
FEW = 5
"""Rows of a list on a short page."""


def input_lines(target: Target, width: int) -> Iterator[Text]:
    """One row for each input that has something to tell; the rest folded."""
    yield heading("Inputs", kind_counts(target))
    told = [entry for entry in target.inputs if is_told(entry)]
    quiet = [entry for entry in target.inputs if not is_told(entry)]
    rows = [
        Row(
            (str(entry.index), entry.name, tensor_text(entry.tensor), handling(target, entry)),
            ("dim", "cyan", "", "yellow" if entry.mutation_type != "not_mutated" else ""),
            tuple(_details(entry.reason if is_changed(entry) else "", entry.sites, width)),
        )
        for entry in told
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


def kind_counts(target: Target) -> str:
    """`148 parameters, 2 arguments`."""
    kinds = Counter(KINDS.get(entry.kind, entry.kind) for entry in target.inputs)
    return ", ".join(counted(count, kind) for kind, count in kinds.items()) or "none"


def output_count(target: Target) -> str:
    """`3, and 1 left outside`."""
    left = sum(entry.left for entry in target.outputs)
    returned = str(len(target.outputs) - left) if len(target.outputs) > left else "none"
    return f"{returned}, and {left} left outside" if left else returned


def left_lines(target: Target, page: Page) -> Iterator[Text]:
    """What the function leaves at places outside of it; nothing where it leaves nothing."""
    if not target.left:
        return
    yield heading("Left outside", f"{counted(len(target.left), 'place')}, at each call")
    shown = target.left[: page.most(len(target.left), FEW)]
    yield from table(
        [_pair((row.place, row.handling), "yellow", row, page.width) for row in shown], page.width
    )
    yield from _rest(len(target.left) - len(shown), page)


def _pair(cells: tuple[str, str], style: str, told: Left | SpecialOperator, width: int) -> Row:
    """A name and a word about it, and below these why and where."""
    return Row(cells, ("cyan", style), tuple(_details(told.reason, told.sites, width)))


def guard_lines(target: Target, page: Page) -> Iterator[Text]:
    """What the sizes must meet, by the line that asked, and the plain values that are built in."""
    values = [guard for guard in target.guards if guard.reason == BUILT_IN]
    sizes = [guard for guard in target.guards if guard.reason != BUILT_IN]
    if sizes:
        yield heading("Guards", f"{counted(len(sizes), 'condition')} on sizes")
        shown = _size_rows(sizes, page.width)[: page.most(len(sizes), FEW)]
        yield from table(shown, page.width)
        yield from _rest(len(sizes) - len(shown), page)
    if values:
        yield heading("Built in", f"{counted(len(values), 'value')}; with another one it is compiled anew")
        rows = [
            Row((guard.expression, place(guard.span) if guard.span else ""), ("cyan", "dim"))
            for guard in values[: page.most(len(values), FEW)]
        ]
        yield from table(rows, page.width)
        yield from _rest(len(values) - len(rows), page)


def _size_rows(guards: list[Guard], width: int) -> list[Row]:
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
    """Effects and higher-order operators; nothing where there are none."""
    if not target.operators:
        return
    yield heading("Effects and higher-order operators", str(len(target.operators)))
    shown = target.operators[: page.most(len(target.operators), FEW)]
    yield from table([_pair((row.op, row.phase), "dim", row, page.width) for row in shown], page.width)
    yield from _rest(len(target.operators) - len(shown), page)


def _rest(count: int, page: Page) -> Iterator[Text]:
    if count:
        yield from paragraph(f"and {count} more ({page.rest})", page.width, "  ", "dim")


def handling(target: Target, entry: Input) -> str:
    """What becomes of an input, in a few of the user's words."""
    parts = []
    if entry.duplicate_of is not None:
        parts.append(f"the same tensor as {_input_name(target, entry.duplicate_of)}")
    if entry.mutates_data:
        parts.append("changed in the graph" if entry.mutation_type == "mutated_in_graph" else "copied back")
    if entry.mutates_metadata:
        parts.append("shape or strides changed")
    if entry.mutates_storage_metadata:
        parts.append("storage exchanged or resized")
    if entry.autograd_change:
        parts.append(entry.autograd_change)
    if entry.hidden_from_autograd:
        parts.append("hidden from autograd")
    elif entry.under_no_grad and entry.mutates_data:
        parts.append("under no_grad")
    if entry.shares_storage_with:
        names = ", ".join(_input_name(target, index) for index in entry.shares_storage_with)
        parts.append(f"shares memory with {names}")
    return ", ".join(parts) or ("read, needs grad" if entry.requires_grad else "read")


def aliasing(target: Target, entry: Output) -> str:
    """What an output is, in a few of the user's words."""
    words = OUTPUTS[entry.output_type].format(base=_base_name(target, entry.base))
    words = f"left outside, {words}" if entry.left else words
    return f"{words}, has grad" if entry.requires_grad else words


def tensor_text(tensor: Tensor | None) -> str:
    """`f32[8, 16]`, with the device where it is not the CPU."""
    if tensor is None:
        return "no tensor"
    kind = f"{tensor.subclass} " if tensor.subclass else ""
    device = "" if tensor.device == "cpu" else f" {tensor.device}"
    return f"{kind}{tensor.short()}{device}"


def site_lines(sites: Iterable[Site], indent: str) -> Iterator[Text]:
    """`file:line:col  text` for each site, once where several operators are at one."""
    for span, text in dict.fromkeys((site.span, site.text) for site in sites):
        yield Text.assemble(indent, (place(span), "dim"), "  ", text)


def _details(reason: str, sites: tuple[Site, ...], width: int) -> Iterator[Text]:
    yield from paragraph(reason, width, DETAIL, "dim")
    yield from site_lines(sites, DETAIL)


def is_changed(entry: Input) -> bool:
    moved = entry.mutates_metadata or entry.mutates_storage_metadata
    return entry.mutation_type != "not_mutated" or moved or entry.autograd_change is not None


def is_told(entry: Input) -> bool:
    aliased = entry.duplicate_of is not None or bool(entry.shares_storage_with)
    return is_changed(entry) or aliased or entry.kind == "UserInput"


def _fold_quiet(entries: list[Input]) -> tuple[Fold[Input], ...]:
    return fold(
        entries,
        name=lambda entry: entry.name,
        same=lambda entry: (entry.kind, tensor_text(entry.tensor), entry.requires_grad),
    )


def _folded_row(group: Fold[Input]) -> Row:
    first = group.first
    what = f"read, {KINDS.get(first.kind, first.kind)}"
    sizes = [entry.tensor.bytes for entry in group.items if entry.tensor and entry.tensor.bytes is not None]
    if group.times:
        what = f"{what} {group.times}, {human_bytes(max(sizes, default=0))} each"
    index = str(first.index) if not group.times else "…"
    return Row((index, group.label, tensor_text(first.tensor), what), ("dim", "", "", "dim"))


def _input_name(target: Target, index: int) -> str:
    return target.inputs[index].name if index < len(target.inputs) else f"input {index}"


def _base_name(target: Target, base: Base | None) -> str:
    if base is None:
        return "another tensor"
    if base.kind == "input":
        return _input_name(target, base.index)
    if base.kind == "output" and base.index < len(target.outputs):
        return target.outputs[base.index].name
    return "an intermediate"
