"""Inputs and outputs: the ledger of mutations and aliases."""

from collections.abc import Iterator

from aotlens.model.report import Input, Output, SideEffect, Site, Target
from aotlens.model.spans import line_of, line_text
from aotlens.view.ledger import aliasing, handling, kind_name
from aotlens.view.tabs.tables.rows import (
    Cells,
    Column,
    Group,
    LazyRows,
    Line,
    Link,
    Listing,
    Part,
    grouped,
    size_part,
)

INPUT_COLUMNS = (
    Column("input", widest=44, narrowest=26, grows=True),
    Column("kind", widest=9, narrowest=9, drop=2),
    Column("tensor", widest=24, narrowest=14, drop=1),
    Column("size", widest=9, narrowest=9, align="right", drop=3, largest_first=True),
    Column("handled", widest=26, narrowest=16),
    Column("line", widest=28, narrowest=4, align="right"),
)
OUTPUT_COLUMNS = (
    Column("output", widest=34, narrowest=10, grows=True),
    Column("tensor", widest=24, narrowest=14, drop=1),
    Column("size", widest=9, narrowest=9, align="right", drop=2, largest_first=True),
    Column("description", widest=34, narrowest=8),
    Column("line", widest=28, narrowest=4, align="right"),
)


def input_listing(target: Target) -> Listing:
    """Every input, in call order."""
    home = target.file

    def cells_of(record: Input) -> Cells:
        return (
            Part(record.name, "name"),
            Part(kind_name(record.kind), "dim"),
            Part(record.tensor.short() if record.tensor else "", "tensor"),
            size_part(record.tensor.bytes) if record.tensor else "",
            handling_part(record, target),
            Part(line_numbers(record.sites, home), "place"),
        )

    def text(record: Input) -> str:
        shape = record.tensor.short() if record.tensor else ""
        return f"{record.name} {record.kind} {shape} {record.mutation_type}"

    rows = LazyRows(
        target.inputs,
        lambda record: f"input:{record.index}",
        cells_of,
        text,
        lambda record: sites_link(record.sites),
    )
    groups = grouped(
        target.inputs, lambda record: record.name, lambda record: (*cells_of(record)[1:], record.sites)
    )

    def group_cells(group: Group) -> Cells:
        rows = [target.inputs[index] for index in group.positions]
        sizes = [row.tensor.bytes for row in rows if row.tensor]
        size = size_part(sum(known for known in sizes if known is not None)) if sizes else ""
        shown = cells_of(rows[0])
        return (Part(group.label, "name"), *shown[1:3], size, *shown[4:])

    return Listing(INPUT_COLUMNS, rows, "no inputs", groups, group_cells)


def handling_part(record: Input, target: Target) -> Part:
    """Return how an input is handled; an input that is only read is dimmed."""
    words = handling(target, record)
    if record.mutation_type == "mutated_out_graph":
        return Part(words, "warning")
    if record.mutation_type != "not_mutated" or record.mutates_metadata:
        return Part(words, "mutation")
    return Part(words, "alias" if record.duplicate_of is not None or record.shares_storage_with else "dim")


def output_listing(target: Target) -> Listing:
    """Every output of the flattened result."""
    home = target.file

    def cells_of(record: Output) -> Cells:
        return (
            Part(record.name, "name"),
            Part(record.tensor.short() if record.tensor else "", "tensor"),
            size_part(record.tensor.bytes) if record.tensor else "",
            Part(aliasing(target, record), "alias" if record.base else "dim"),
            Part(line_numbers(record.sites, home), "place"),
        )

    rows = LazyRows(
        target.outputs,
        lambda record: f"output:{record.index}",
        cells_of,
        lambda record: f"{record.name} {record.output_type}",
        lambda r: sites_link(r.sites),
    )
    return Listing(OUTPUT_COLUMNS, rows, "no outputs")


def _side_effect_row(row: SideEffect, target: Target) -> Iterator[Line]:
    parts = (Part(row.name, "code"), Part(f"  {row.handling}", "mutation"), Part(f"  {row.reason}", "dim"))
    yield Line(parts, sites_link(row.sites), wrap=True)
    yield from site_lines(row.sites, "set by", target)


def guard_lines(target: Target) -> Iterator[Line]:
    """Yield the conditions on symbolic sizes, and the plain values that are constants of the program."""
    if not target.guards:
        return
    yield Line((Part("guards", "title"),))
    for guard in target.guards:
        yield Line(
            (Part(guard.expression, "code"), Part(f"  {guard.reason}", "dim")), sites_link(guard.sites)
        )
        yield from site_lines(guard.sites, "needed by", target)


def input_details(record: Input, target: Target) -> Iterator[Line]:
    """Yield the lines below the table for the selected input."""
    yield Line((Part(record.name, "title"), Part(f"  {kind_name(record.kind)}", "dim")))
    yield from tensor_lines(record)
    if record.reason:
        yield Line((Part(record.reason),), wrap=True)
    yield Line((Part(handling(target, record), handling_part(record, target).role),), wrap=True)
    yield from site_lines(record.sites, "mutated by", target)


def output_details(record: Output, target: Target) -> Iterator[Line]:
    """Yield the lines below the table for the selected output."""
    yield Line((Part(record.name, "title"), Part(f"  {record.output_type}", "dim")))
    yield from tensor_lines(record)
    if record.reason:
        yield Line((Part(record.reason),), wrap=True)
    yield Line((Part(aliasing(target, record), "alias"),))
    yield from site_lines(record.sites, "created by", target)
    for row in target.side_effects:
        if record.index in row.outputs:
            yield from _side_effect_row(row, target)


def tensor_lines(record: Input | Output) -> Iterator[Line]:
    tensor = record.tensor
    if tensor is None:
        yield Line((Part("not a tensor", "dim"),))
        return
    strides = ", ".join(str(step) for step in tensor.stride)
    grad = " · requires grad" if record.requires_grad else ""
    kind = f"{tensor.subclass} " if tensor.subclass else ""
    parts = (
        Part(f"{kind}{tensor.short()}", "tensor"),
        Part(f"  strides ({strides})  {tensor.device}{grad}", "dim"),
    )
    yield Line(parts)


def site_lines(sites: tuple[Site, ...], verb: str, target: Target) -> Iterator[Line]:
    home = target.file
    for site in sites:
        parts = (
            Part(f"{verb} ", "dim"),
            Part(site.text.splitlines()[0] if site.text else site.op or "", "code"),
            Part(f"  {line_text(site.span, home)}", "place"),
            Part(f"  {site.op or ''}", "dim"),
        )
        yield Line(parts, Link((site.span,)))


def sites_link(sites: tuple[Site, ...]) -> Link:
    return Link(tuple(site.span for site in sites))


def line_numbers(sites: tuple[Site, ...], home: str | None) -> str:
    """Return the lines of the sites: `20`, or `20, 31`."""
    return ", ".join(dict.fromkeys(line_of(site.span, home) for site in sites))
