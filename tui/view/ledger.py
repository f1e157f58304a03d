"""Inputs and outputs: the ledger of mutations and aliases."""

from collections.abc import Iterator

from aotlens.report.records import Input, Output, Site, Target
from tui.view.places import home_file, line_place, place
from tui.view.quantities import size
from tui.view.rows import Column, LazyRows, Line, Link, Listing, Part, Row

MUTATIONS = {
    "not_mutated": Part("", ""),
    "mutated_in_graph": Part("in graph", "mutation"),
    "mutated_out_graph": Part("copied back", "warning"),
}
"""In a user's words: where the write of a mutated input happens."""

OUTPUT_TYPES = {
    "non_alias": "",
    "alias_of_input": "view of",
    "is_input": "is",
    "alias_of_intermediate_save_as_output": "view of",
    "alias_of_intermediate": "view of",
    "alias_of_intermediate_base_is_user_output": "view of",
    "unsafe_view_alias": "",
    "custom_function_view": "view by a custom function",
}
"""How an output is tied to its base; empty when it stands alone."""

KINDS = {
    "UserInput": "argument",
    "Parameter": "parameter",
    "Buffer": "buffer",
    "SymInt": "size",
    "Constant": "constant",
}

INPUT_COLUMNS = (
    Column("input", widest=44, narrowest=12, grows=True),
    Column("kind", widest=9, narrowest=9, drop=2),
    Column("tensor", widest=24, narrowest=10, drop=1),
    Column("size", widest=9, narrowest=8, align="right", drop=3),
    Column("mutated", widest=16, narrowest=11),
    Column("line", widest=16, narrowest=4, align="right"),
)
OUTPUT_COLUMNS = (
    Column("output", widest=34, narrowest=10, grows=True),
    Column("tensor", widest=24, narrowest=10, drop=1),
    Column("size", widest=9, narrowest=8, align="right", drop=2),
    Column("alias", widest=30, narrowest=8),
    Column("line", widest=16, narrowest=4, align="right"),
)


def input_listing(target: Target) -> Listing:
    """Every input, in call order."""
    home = home_file(target)

    def row(record: Input) -> Row:
        cells = (
            Part(record.name, "name"),
            Part(KINDS.get(record.kind, record.kind), "dim"),
            Part(record.tensor.short() if record.tensor else "", "tensor"),
            size(record.tensor.bytes) if record.tensor else "",
            input_state(record, target),
            Part(places(record.sites, home), "place"),
        )
        return Row(f"input:{record.index}", cells)

    def text(record: Input) -> str:
        shape = record.tensor.short() if record.tensor else ""
        return f"{record.name} {record.kind} {shape} {record.mutation_type}"

    rows = LazyRows(target.inputs, row, text, lambda record: sites_link(record.sites))
    return Listing(INPUT_COLUMNS, rows, "no inputs")


def input_state(record: Input, target: Target) -> Part:
    """What makes an input special: a mutation, else a duplicate, else shared storage."""
    if record.mutation_type != "not_mutated":
        return MUTATIONS[record.mutation_type]
    if record.duplicate_of is not None:
        return Part(f"= {input_name(target, record.duplicate_of)}", "alias")
    return Part("shares", "alias") if record.shares_storage_with else Part("")


def output_listing(target: Target) -> Listing:
    """Every output of the flattened result."""
    home = home_file(target)

    def row(record: Output) -> Row:
        cells = (
            Part(record.name, "name"),
            Part(record.tensor.short() if record.tensor else "", "tensor"),
            size(record.tensor.bytes) if record.tensor else "",
            Part(alias(record, target), "alias"),
            Part(places(record.sites, home), "place"),
        )
        return Row(f"output:{record.index}", cells)

    rows = LazyRows(
        target.outputs,
        row,
        lambda record: f"{record.name} {record.output_type}",
        lambda r: sites_link(r.sites),
    )
    return Listing(OUTPUT_COLUMNS, rows, "no outputs")


def alias(record: Output, target: Target) -> str:
    """`view of cache`, `is x`, `view of an intermediate`; empty for a tensor of its own."""
    verb = OUTPUT_TYPES[record.output_type]
    if record.base is None or not verb:
        return verb
    if record.base.kind == "input":
        return f"{verb} {input_name(target, record.base.index)}"
    if record.base.kind == "output":
        return f"{verb} {output_name(target, record.base.index)}"
    return f"{verb} an intermediate"


def input_details(record: Input, target: Target) -> Iterator[Line]:
    """What stands below the table for the selected input."""
    yield Line((Part(record.name, "title"), Part(f"  {KINDS.get(record.kind, record.kind)}", "dim")))
    yield from tensor_lines(record)
    if record.reason:
        yield Line((Part(record.reason),), wrap=True)
    facts = [
        ("data written", record.mutates_data),
        ("sizes or strides changed", record.mutates_metadata),
        ("storage replaced", record.mutates_storage_metadata),
        ("hidden from autograd", record.hidden_from_autograd),
        ("written under no_grad", record.under_no_grad),
        ("leaf", record.requires_grad and record.is_leaf),
    ]
    true = [fact for fact, holds in facts if holds]
    if true:
        yield Line((Part(" · ".join(true), "dim"),), wrap=True)
    if record.duplicate_of is not None:
        yield Line((Part(f"the same tensor as {input_name(target, record.duplicate_of)}", "alias"),))
    for index in record.shares_storage_with:
        yield Line((Part(f"shares storage with {input_name(target, index)}", "alias"),))
    yield from site_lines(record.sites, "mutated by", target)


def output_details(record: Output, target: Target) -> Iterator[Line]:
    """What stands below the table for the selected output."""
    yield Line((Part(record.name, "title"), Part(f"  {record.output_type}", "dim")))
    yield from tensor_lines(record)
    if record.reason:
        yield Line((Part(record.reason),), wrap=True)
    if record.base is not None and alias(record, target):
        yield Line((Part(alias(record, target), "alias"),))
    yield from site_lines(record.sites, "made by", target)


def tensor_lines(record: Input | Output) -> Iterator[Line]:
    tensor = record.tensor
    if tensor is None:
        yield Line((Part("not a tensor", "dim"),))
        return
    strides = ", ".join(str(step) for step in tensor.stride)
    grad = " · requires grad" if record.requires_grad else ""
    parts = (Part(tensor.short(), "tensor"), Part(f"  strides ({strides})  {tensor.device}{grad}", "dim"))
    yield Line(parts)


def site_lines(sites: tuple[Site, ...], verb: str, target: Target) -> Iterator[Line]:
    home = home_file(target)
    for site in sites:
        parts = (
            Part(f"{verb} ", "dim"),
            Part(site.text.splitlines()[0] if site.text else site.op or "", "code"),
            Part(f"  {line_place(site.span, home)}", "place"),
            Part(f"  {site.op or ''}", "dim"),
        )
        yield Line(parts, Link((site.span,)))


def input_name(target: Target, index: int) -> str:
    return next((row.name for row in target.inputs if row.index == index), f"input {index}")


def output_name(target: Target, index: int) -> str:
    return next((row.name for row in target.outputs if row.index == index), f"output {index}")


def sites_link(sites: tuple[Site, ...]) -> Link:
    return Link(tuple(site.span for site in sites))


def places(sites: tuple[Site, ...], home: str | None) -> str:
    """The lines of the sites: `20`, or `20, 31`."""
    return ", ".join(dict.fromkeys(place(site.span, home) for site in sites))
