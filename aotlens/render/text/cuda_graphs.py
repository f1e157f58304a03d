"""CUDA graphs in the text report."""

from collections.abc import Iterator

from rich.text import Text

from aotlens.model.cuda_graphs import BlockerEffect, CudaGraph
from aotlens.render.text.layout import Row, heading, paragraph, table
from aotlens.render.text.ledger import site_lines
from aotlens.view.cuda_graphs import EFFECTS, VERDICTS, what_blocks
from aotlens.view.quantities import counted

STYLES: dict[BlockerEffect, str] = {
    "prevents": "red",
    "splits": "yellow",
    "repeats": "yellow",
    "beside": "dim",
}
MOST_SITES = 3
"""Places that one row names."""


def cuda_graph_lines(cuda_graph: CudaGraph | None, width: int) -> Iterator[Text]:
    """Yield the verdict, then each blocker with its lines; nothing for a target without a GPU."""
    if cuda_graph is None:
        return
    verdicts = ", ".join(f"{phase} {VERDICTS[verdict]}" for phase, verdict in cuda_graph.phases.items())
    yield heading("CUDA graphs", verdicts)
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
        for blocker in cuda_graph.blockers
    ]
    yield from table(rows, width)


def _why(reason: str, advice: str) -> str:
    return f"{reason}; {advice}" if advice else reason


def _more(others: int) -> Iterator[Text]:
    if others > 0:
        yield Text(f"      and {counted(others, 'more location')}", "dim")
