"""The verdict on CUDA graphs as the text report shows it."""

from collections.abc import Iterator

from rich.text import Text

from aotlens.report.cuda_graph_records import (
    BlockerEffect,
    CudaGraph,
    CudaGraphBlocker,
    CudaGraphVerdict,
)
from aotlens.report.layout import Row, heading, paragraph, table
from aotlens.report.ledger import site_lines
from aotlens.report.summary import counted

VERDICTS: dict[CudaGraphVerdict, str] = {
    "recorded": "recorded whole",
    "in_parts": "recorded in parts",
    "not_recorded": "not recorded",
}
EFFECTS: dict[BlockerEffect, str] = {
    "prevents": "not recorded",
    "splits": "splits it",
    "repeats": "recorded again",
    "beside": "runs beside it",
}
STYLES: dict[BlockerEffect, str] = {
    "prevents": "red",
    "splits": "yellow",
    "repeats": "yellow",
    "beside": "dim",
}
MOST_SITES = 3
"""Places that one row names."""


def cuda_graph_lines(found: CudaGraph | None, width: int) -> Iterator[Text]:
    """The verdict, then each blocker with its places; nothing for a target without a GPU."""
    if found is None:
        return
    told = ", ".join(f"{phase} {VERDICTS[verdict]}" for phase, verdict in found.phases.items())
    yield heading("CUDA graphs", told)
    rows = [
        Row(
            (what_blocks(blocker), blocker.phase, EFFECTS[blocker.effect]),
            ("cyan", "dim", STYLES[blocker.effect]),
            (
                *paragraph(_why(blocker.reason, blocker.advice), width, "      ", "dim"),
                *site_lines(blocker.sites[:MOST_SITES], "      "),
                *_more(len(blocker.sites) - MOST_SITES),
            ),
        )
        for blocker in found.blockers
    ]
    yield from table(rows, width)


def what_blocks(blocker: CudaGraphBlocker) -> str:
    """By its name, with how many others of its expression are alike: `aten.mul.Tensor and 2 more`."""
    others = blocker.operators - 1
    return f"{blocker.what} and {others} more" if others else blocker.what


def _why(reason: str, advice: str) -> str:
    return f"{reason}; {advice}" if advice else reason


def _more(others: int) -> Iterator[Text]:
    if others > 0:
        yield Text(f"      and {counted(others, 'more place')}", "dim")
