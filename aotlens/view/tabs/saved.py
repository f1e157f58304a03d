"""Rows of saved and recomputed values, each with its reason.

Names and totals come from `aotlens.view.partition.saved`.
"""

from collections.abc import Iterator, Sequence

from aotlens.model.report import Certificate, Partition, RecomputedValue, SavedValue, Target
from aotlens.model.spans import line_of, line_text, own_first, texts
from aotlens.view.fold import in_layer
from aotlens.view.partition.reasons import FREEDOMS, forbidden_text, overruled_text, price_text, reason_text
from aotlens.view.partition.saved import (
    alive_anyway_bytes,
    layer_value_name,
    owning_recomputed,
    recomputed_total,
    same_named,
    saved_total,
    value_name,
    with_node,
)
from aotlens.view.plots import bar
from aotlens.view.quantities import human_bytes, human_flops
from aotlens.view.tabs.tables.rows import (
    Cells,
    Column,
    Group,
    Jump,
    LazyRows,
    Line,
    Link,
    Listing,
    Part,
    grouped,
    size_part,
)

BAR_WIDTH = 8
ZERO = Part("0", "dim", 0)

SAVED_COLUMNS = (
    Column("saved", widest=9, narrowest=9, align="right", largest_first=True),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=2),
    Column("value", widest=48, narrowest=30),
    Column("tensor", widest=24, narrowest=18, drop=3),
    Column("line", widest=40, narrowest=4, align="right"),
    Column("uses", widest=4, narrowest=4, align="right", drop=4, largest_first=True),
    Column("why", widest=18, narrowest=6),
    Column("reason", widest=30, narrowest=16, grows=True, drop=5),
)
RECOMPUTED_COLUMNS = (
    Column("not saved", widest=9, narrowest=9, align="right", largest_first=True),
    Column("value", widest=48, narrowest=30),
    Column("work", widest=11, narrowest=11, align="right", drop=1, largest_first=True),
    Column("line", widest=40, narrowest=4, align="right"),
    Column("why", widest=18, narrowest=6),
    Column("reason", widest=30, narrowest=16, grows=True, drop=5),
)
OWNERS = {
    "input": "held by an argument",
    "parameter": "held by a parameter",
    "output": "held by an output",
    "new": "",
}
NOTHING_SAVED = "inference: nothing is saved for a backward"


def by_bytes(values: Sequence[SavedValue]) -> tuple[SavedValue, ...]:
    """Return the values, the largest first; values that cost nothing keep the order of the program.

    Of equal bytes, those of the user's own files come first.
    """
    return tuple(sorted(values, key=lambda saved: (-saved.bytes, own_first(saved.span))))


def largest_recomputed(partition: Partition) -> tuple[RecomputedValue, ...]:
    """Return the recomputed values by the memory that saving them would take."""
    return tuple(sorted(partition.recomputed, key=lambda value: -value.bytes))


def saved_link(saved: SavedValue) -> Link:
    """Return the expression that computes it, and the expressions whose backward reads it."""
    uses = tuple(use.span for use in saved.used_by if use.span is not None and use.span != saved.span)
    return Link((saved.span,) if saved.span else (), uses)


def saved_listing(target: Target) -> Listing:
    """Saved values by bytes."""
    partition, home = target.partition, target.file
    records = by_bytes(partition.saved) if partition else ()
    text_at = texts()
    ambiguous = same_named(records, text_at)
    groups = grouped(records, lambda saved: layer_value_name(saved, text_at), same_layer)
    group_bytes = {group: sum(records[index].bytes for index in group.positions) for group in groups}
    longest_bar = max((*group_bytes.values(), *(saved.bytes for saved in records)), default=0)

    def cells_of(saved: SavedValue) -> Cells:
        return (
            size_part(saved.bytes) if saved.bytes else ZERO,
            Part(bar(saved.bytes, longest_bar, BAR_WIDTH), "saved"),
            Part(with_node(value_name(saved, text_at), (saved.node,), ambiguous), "name"),
            Part(saved.tensor.short(), "tensor"),
            Part(line_of(saved.span, home), "place"),
            str(len(saved.used_by)),
            Part(saved.code, "accent" if saved.freedom == "choice" else ""),
            Part(saved.reason, "" if saved.bytes else "dim"),
        )

    def text(saved: SavedValue) -> str:
        return f"{value_name(saved, text_at)} {saved.node} {saved.tensor.short()} {reason_text(saved)}"

    def group_cells(group: Group) -> Cells:
        total_bytes = group_bytes[group]
        size = size_part(total_bytes) if total_bytes else ZERO
        drawn = Part(bar(total_bytes, longest_bar, BAR_WIDTH), "saved")
        values = [records[index] for index in group.positions]
        name = with_node(group.label, in_first_layer(values), ambiguous)
        return (size, drawn, Part(name, "name"), *cells_of(values[0])[3:])

    return Listing(
        SAVED_COLUMNS,
        LazyRows(records, lambda saved: f"saved:{saved.node}", cells_of, text, saved_link),
        nothing(partition),
        tuple(sorted(groups, key=lambda group: -group_bytes[group])),
        group_cells,
    )


def same_layer(saved: SavedValue) -> tuple[object, ...]:
    """Return the fields that the rows of identical layers share: all that they show."""
    return (saved.span, saved.tensor.short(), saved.bytes, saved.owner, saved.reason)


def in_first_layer(values: Sequence[SavedValue] | Sequence[RecomputedValue]) -> tuple[str, ...]:
    """Return the nodes of a folded row in its first layer."""
    return tuple(value.node for value in values if value.layer == values[0].layer)


def nothing(partition: Partition | None) -> str:
    return NOTHING_SAVED if partition is None else "nothing is saved for the backward"


def recomputed_listing(target: Target) -> Listing:
    """Return the recomputed values, those that would take most memory first."""
    partition, home = target.partition, target.file
    records = largest_recomputed(partition) if partition else ()
    text_at = texts()
    ambiguous = same_named(records, text_at)

    def cells_of(value: RecomputedValue) -> Cells:
        return (
            size_part(value.bytes),
            Part(with_node(value_name(value, text_at), (value.node,), ambiguous), "name"),
            Part(human_flops(value.flops), "", value.flops),
            Part(line_of(value.span, home), "place"),
            value.code,
            value.reason,
        )

    rows = LazyRows(
        records,
        lambda value: f"recomputed:{value.node}",
        cells_of,
        lambda value: f"{value_name(value, text_at)} {value.node} {reason_text(value)}",
        lambda v: Link((v.span,) if v.span else ()),
    )
    groups = grouped(
        records,
        lambda value: in_layer(value.layer, value_name(value, text_at)),
        lambda value: (value.span, value.bytes, value.flops, value.code, value.reason),
    )

    def group_cells(group: Group) -> Cells:
        values = [records[index] for index in group.positions]
        size, work = sum(value.bytes for value in values), sum(value.flops for value in values)
        done = Part(human_flops(work), "", work)
        name = with_node(group.label, in_first_layer(values), ambiguous)
        return (size_part(size), Part(name, "name"), done, *cells_of(values[0])[3:])

    ordered = sorted(groups, key=lambda group: -sum(records[index].bytes for index in group.positions))
    empty = "nothing is recomputed" if partition else NOTHING_SAVED
    return Listing(RECOMPUTED_COLUMNS, rows, empty, tuple(ordered), group_cells)


def total_line(target: Target) -> Line:
    """Return the headline of the tab."""
    partition = target.partition
    if partition is None:
        return Line((Part(NOTHING_SAVED, "dim"),))
    size, _, number = saved_total(partition).partition(" in ")
    parts = [Part(size, "title"), Part(f" in {number}")]
    if held := alive_anyway_bytes(partition):
        parts.append(Part(f" · {human_bytes(held)} alive anyway", "dim"))
    if owning_recomputed(partition):
        parts.append(Part(f" · {recomputed_total(partition)} recomputed", "dim"))
    parts.append(Part(f" · policy {partition.policy}", "dim"))
    if partition.default_bytes is not None and partition.default_bytes != partition.saved_bytes:
        parts.append(Part(f" · `default` would save {human_bytes(partition.default_bytes)}", "dim"))
    return Line(tuple(parts))


def saved_details(saved: SavedValue, target: Target) -> Iterator[Line]:
    """Yield the lines below the table for the selected value."""
    home = target.file
    held = f" · {OWNERS[saved.owner]}" if OWNERS[saved.owner] else ""
    dropped = " · donated" if saved.donated else ""
    yield Line(
        (
            Part(value_name(saved), "title"),
            Part(f"  {saved.tensor.short()}", "tensor"),
            Part(f"  {human_bytes(saved.tensor.bytes)}{held}{dropped}", "dim"),
        )
    )
    yield from why_lines(saved)
    if saved.certificate is not None:
        yield from certificate_lines(saved.certificate, home)
    node, op = Part(saved.node, "name"), Part(f"  {saved.op}" if saved.op else "", "op")
    yield Line((Part("node  ", "dim"), node, op), jump=Jump("graphs", f"forward/{saved.node}"))
    for use in saved.used_by:
        parts = (
            Part("read by  ", "dim"),
            Part(use.node, "name"),
            Part(" in the backward of ", "dim"),
            Part(line_text(use.span, home) or "added by the compiler", "place"),
        )
        yield Line(parts, Link((use.span,) if use.span else ()), Jump("graphs", f"backward/{use.node}"))


def recomputed_details(value: RecomputedValue, target: Target) -> Iterator[Line]:
    yield Line(
        (
            Part(value_name(value), "title"),
            Part(f"  {human_bytes(value.bytes)} not saved, {human_flops(value.flops)} more", "dim"),
        )
    )
    yield from why_lines(value)
    where = line_text(value.span, target.file)
    jump = Jump("graphs", f"backward/{value.node}")
    yield Line((Part("node  ", "dim"), Part(value.node, "name"), Part(f"  {where}", "place")), jump=jump)
    if value.in_forward:
        counterpart = Jump("graphs", f"forward/{value.node}")
        yield Line(
            (Part("counterpart  ", "dim"), Part(value.node, "name"), Part(" in the forward", "dim")),
            jump=counterpart,
        )


def why_lines(value: SavedValue | RecomputedValue) -> Iterator[Line]:
    """Yield the reason with its code, whether it can be changed, and what it overrules."""
    freedom = f" · {FREEDOMS[value.freedom]}" if value.code and value.freedom in FREEDOMS else ""
    yield Line((Part("why  ", "dim"), Part(reason_text(value)), Part(freedom, "dim")), wrap=True)
    if value.overrode:
        yield Line((Part("!  ", "warning"), Part(overruled_text(value), "warning")), wrap=True)


def certificate_lines(certificate: Certificate, home: str | None) -> Iterator[Line]:
    """Yield why the value cannot be recomputed, who needs it, and the cost of the next cheapest set."""
    if certificate.above is not None:
        link = Link((certificate.above_span,)) if certificate.above_span else Link()
        jump = Jump("graphs", f"forward/{certificate.above}")
        yield Line((Part("above  ", "dim"), Part(forbidden_text(certificate))), link, jump, wrap=True)
    if certificate.below is not None:
        where = line_text(certificate.below_span, home)
        link = Link((certificate.below_span,)) if certificate.below_span else Link()
        parts = (Part("below  ", "dim"), Part(certificate.below, "name"), Part(" needs it", "dim"))
        jump = Jump("graphs", f"backward/{certificate.below}")
        yield Line((*parts, Part(f"  {where}" if where else "", "place")), link, jump)
    yield Line((Part("else  ", "dim"), Part(price_text(certificate))), wrap=True)
