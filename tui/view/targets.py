"""The list of targets: one row per function or module and input signature."""

from collections import Counter

from aotlens.report.records import Report, Target
from aotlens.report.summary import human_bytes, signature
from tui.view.marks import SEVERITY_LETTERS, all_diagnostics
from tui.view.places import place
from tui.view.rows import Cells, Column, LazyRows, Link, Listing, Part

TARGET_COLUMNS = (
    Column("target", widest=40, narrowest=12, grows=True),
    Column("mode", widest=5, narrowest=5, drop=3),
    Column("saved", widest=9, narrowest=8, align="right", drop=1),
    Column("found", widest=9, narrowest=5, drop=2),
    Column("line", widest=16, narrowest=4, align="right"),
)
MODES = {"training": "train", "inference": "infer"}


def target_listing(report: Report) -> Listing:
    """Every target in the order in which it was captured."""
    records = tuple(enumerate(report.targets))
    home = report.targets[0].span.file if report.targets and report.targets[0].span else None

    def cells_of(record: tuple[int, Target]) -> Cells:
        index, target = record
        return (
            Part(target_title(report, index), "name"),
            Part(MODES[target.mode], "dim"),
            Part(human_bytes(target.partition.saved_bytes) if target.partition else "", "saved"),
            Part(diagnostic_tally(report, target), "warning"),
            Part(place(target.span, home), "place"),
        )

    def link(record: tuple[int, Target]) -> Link:
        return Link((record[1].span,) if record[1].span else ())

    rows = LazyRows(
        records,
        lambda record: f"target:{record[0]}",
        cells_of,
        lambda record: f"{record[1].qualname} {record[1].mode}",
        link,
    )
    return Listing(TARGET_COLUMNS, rows, "no targets")


def target_title(report: Report, index: int) -> str:
    """The qualified name; with the number of its signature when it was captured more than once."""
    target = report.targets[index]
    same = [place for place, other in enumerate(report.targets) if other.qualname == target.qualname]
    if len(same) == 1:
        return target.qualname
    return f"{target.qualname} #{same.index(index) + 1} {signature(target)}"


def diagnostic_tally(report: Report, target: Target) -> str:
    """`1E 2W`; information and hints are not counted."""
    tally = Counter(item.severity for item in all_diagnostics(report, target))
    shown = [f"{tally[level]}{SEVERITY_LETTERS[level]}" for level in ("error", "warning") if tally[level]]
    return " ".join(shown)
