"""The list of targets: one row per function or module and input signature."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.model.spans import line_of
from aotlens.view.logs import ranks_text
from aotlens.view.quantities import multiplied, signature
from aotlens.view.tabs.source.marks import SEVERITY_LETTERS, all_diagnostics
from aotlens.view.tabs.tables.rows import Cells, Column, LazyRows, Link, Listing, Part, size_part

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.log import ListedTarget
    from aotlens.model.report import Report, Target

TARGET_COLUMNS = (
    Column("target", widest=40, narrowest=12, grows=True),
    Column("mode", widest=5, narrowest=5, drop=3),
    Column("saved", widest=9, narrowest=8, align="right", drop=1, largest_first=True),
    Column("found", widest=9, narrowest=5, drop=2),
    Column("line", widest=40, narrowest=4, align="right"),
)
MODES = {"training": "train", "inference": "infer"}


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One row of the list: a function, one of its signatures, or a target of a log that was not read."""

    index: int
    """The target's index in the report; for a function with several signatures, that of the first."""
    branch: str = ""
    """The branch before a signature; empty for a function."""
    signatures: int = 0
    """The number of signatures; 0 for the row of a single target."""
    listed: ListedTarget | None = None
    """A target of a log whose graphs were not read; its `index` continues after the report's targets."""


def target_rows(report: Report) -> tuple[TargetRow, ...]:
    """Return one row for a function with one signature, else one with its signatures below it."""
    rows: list[TargetRow] = []
    by_name: dict[str, list[int]] = {}
    for index, target in enumerate(report.targets):
        by_name.setdefault(target.qualname, []).append(index)
    for indices in by_name.values():
        if len(indices) == 1:
            rows.append(TargetRow(indices[0]))
            continue
        rows.append(TargetRow(indices[0], signatures=len(indices)))
        rows += [TargetRow(index, "╰ " if index == indices[-1] else "├ ") for index in indices]
    listed = report.log.listed if report.log is not None else ()
    rows += [TargetRow(index, listed=row) for index, row in enumerate(listed, start=len(report.targets))]
    return tuple(rows)


def row_of(report: Report, index: int) -> int:
    """Return the row that shows the target itself."""
    rows = target_rows(report)
    return next(
        (position for position, row in enumerate(rows) if row.index == index and not row.signatures), 0
    )


def target_listing(report: Report) -> Listing:
    """Return functions and modules in the order of their capture, each with its input signatures; then the
    targets of a log that were not read."""
    home = report.targets[0].span.file if report.targets and report.targets[0].span else None

    def cells_of(row: TargetRow) -> Cells:
        if row.listed is not None:
            return _listed_cells(row.listed, home)
        target = report.targets[row.index]
        if row.signatures:
            title = f"{target.qualname}  {multiplied(row.signatures)}"
            return (Part(title, "title"), "", "", "", Part(line_of(target.span, home), "place"))
        name = f"{row.branch}{signature(target)}" if row.branch else target.qualname
        return (
            Part(name, "name"),
            Part(MODES[target.mode], "dim"),
            size_part(target.partition.saved_bytes, "saved") if target.partition else "",
            Part(diagnostic_tally(report, target), "warning"),
            Part("" if row.branch else line_of(target.span, home), "place"),
        )

    def link(row: TargetRow) -> Link:
        span = row.listed.span if row.listed is not None else report.targets[row.index].span
        return Link((span,) if span else ())

    rows = LazyRows(
        target_rows(report),
        lambda row: f"{'group' if row.signatures else 'target'}:{row.index}",
        cells_of,
        lambda row: _searched(report, row),
        link,
    )
    return Listing(TARGET_COLUMNS, rows, "no targets")


def _listed_cells(listed: ListedTarget, home: str | None) -> Cells:
    """Return the row of a target that was not read; Enter reads it."""
    return (
        Part(f"{listed.qualname} ({listed.compile_id}){ranks_text(listed.ranks)}", "dim"),
        Part(MODES[listed.mode], "dim"),
        "",
        Part("Enter", "dim"),
        Part(line_of(listed.span, home), "place"),
    )


def _searched(report: Report, row: TargetRow) -> str:
    """Return the text that the filter of the list looks at."""
    if row.listed is not None:
        return f"{row.listed.qualname} {row.listed.compile_id} {row.listed.mode}"
    return f"{target_title(report, row.index)} {report.targets[row.index].mode}"


def target_title(report: Report, index: int) -> str:
    """Return the qualified name; with the number of its signature if it was captured more than once."""
    target = report.targets[index]
    same = [position for position, other in enumerate(report.targets) if other.qualname == target.qualname]
    if len(same) == 1:
        return target.qualname
    return f"{target.qualname} #{same.index(index) + 1} {signature(target)}"


def target_address(report: Report, index: int) -> str:
    """Return the target's part of an address: `GPT.forward`; from the second signature on `GPT.forward~2`."""
    name = report.targets[index].qualname
    number = sum(target.qualname == name for target in report.targets[: index + 1])
    return name if number == 1 else f"{name}~{number}"


def diagnostic_tally(report: Report, target: Target) -> str:
    """`1E 2W`; information and hints are not counted."""
    tally = Counter(item.severity for item in all_diagnostics(report, target))
    shown = [f"{tally[level]}{SEVERITY_LETTERS[level]}" for level in ("error", "warning") if tally[level]]
    return " ".join(shown)
