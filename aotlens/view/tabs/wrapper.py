"""The steps of the runtime wrapper beside the text of the generated module."""

from collections.abc import Iterator

from aotlens.model.report import Target, Wrapper, WrapperStep
from aotlens.view.quantities import per_call
from aotlens.view.tabs.ledger import line_numbers, site_lines, sites_link
from aotlens.view.tabs.tables.rows import Cells, Column, LazyRows, Line, Listing, Part, size_part

STEP_COLUMNS = (
    Column("", widest=1, narrowest=1),
    Column("step", widest=30, narrowest=14),
    Column("per call", widest=9, narrowest=9, align="right", drop=1, largest_first=True),
    Column("line", widest=28, narrowest=4, align="right", drop=2),
    Column("why", widest=30, narrowest=12, grows=True),
)


def ordered_steps(wrapper: Wrapper | None) -> tuple[WrapperStep, ...]:
    """Return the steps of each call in the order of the text, then those that are not needed."""
    steps = wrapper.steps if wrapper else ()
    return tuple(sorted(steps, key=lambda step: (not step.applied, step.lines or (0, 0))))


def step_listing(target: Target) -> Listing:
    """One row a step; `+` applied, `-` not needed."""
    home = target.file

    def cells_of(step: WrapperStep) -> Cells:
        return (
            Part("+", "ok") if step.applied else Part("-", "dim"),
            Part(step.name, "name" if step.applied else "dim"),
            size_part(step.bytes_per_call) if step.bytes_per_call else "",
            Part(line_numbers(step.sites, home), "place"),
            Part(step.reason, "" if step.applied else "dim"),
        )

    rows = LazyRows(
        ordered_steps(target.wrapper),
        lambda step: f"step:{step.name}",
        cells_of,
        lambda step: f"{step.name} {step.reason}",
        lambda s: sites_link(s.sites),
    )
    return Listing(
        STEP_COLUMNS, rows, "the wrapper has no steps" if target.wrapper else "no wrapper was generated"
    )


def step_details(step: WrapperStep, target: Target) -> Iterator[Line]:
    """Yield the lines below the table for the selected step: its reason, its cost, its cause."""
    when = "runs on each call" if step.applied else "not needed"
    cost = f", {per_call(step.bytes_per_call)}" if step.bytes_per_call else ""
    parts = (Part(step.name, "title"), Part(f"  {when}{cost}", "ok" if step.applied else "dim"))
    yield Line(parts, sites_link(step.sites))
    yield Line((Part(step.reason),), wrap=True)
    yield from site_lines(step.sites, "caused by", target)


def step_at(steps: tuple[WrapperStep, ...], line: int) -> int | None:
    """Return the innermost step that the 1-based line of the module text belongs to."""
    around = [
        (step.lines[1] - step.lines[0], index)
        for index, step in enumerate(steps)
        if step.lines and step.lines[0] <= line <= step.lines[1]
    ]
    return min(around)[1] if around else None
