"""Family AL4, ranks: those of one run that compile different code, AL410 and AL411."""

from collections.abc import Iterator

from aotlens.diagnostics.rule import Rule
from aotlens.model.ranks import Ranks
from aotlens.model.report import Diagnostic, Related
from aotlens.model.source import Span
from aotlens.view.ranks import difference_text, mismatch_text, rank_names

RANKS = (
    Rule(
        "AL410",
        "Ranks that compile different graphs",
        "warning",
        "Under one compile id, some ranks of the run compiled another graph than the others, or none. The"
        " reason is a branch on the rank, or data of other sizes. Graphs count as equal when only a GPU's"
        " number or a process group's name differs.",
        "Each rank compiles for itself, so the slowest compilation holds up all of them, and a collective in"
        " one graph that another graph lacks hangs the job.",
        "The message names the first node in which they differ, and its line on both sides. Have all ranks"
        " take the same branch inside of compiled functions, and pad batches to the same size.",
        "@torch.compile\ndef step(x):\n    if dist.get_rank() == 0:\n        x = x * 2\n    return x.relu()",
        "@torch.compile\ndef step(x, scale):\n    return (x * scale).relu()",
    ),
    Rule(
        "AL411",
        "Ranks that run different collectives",
        "error",
        "Collectives meet in the order in which ranks start them. In the compiled graphs of two ranks, the"
        " collectives at the same position differ in operation, sizes or data type, or one rank has no more.",
        "The ranks wait for each other until the watchdog ends the job, or read memory of the wrong size.",
        "The message names both collectives; make the code before them the same on all ranks.",
        "@torch.compile\ndef step(x):\n    if dist.get_rank() == 0:\n        dist.all_reduce(x)\n"
        "    return x",
        "@torch.compile\ndef step(x):\n    dist.all_reduce(x)\n    return x",
    ),
)


__all__ = ["rank_findings"]


def rank_findings(ranks: Ranks | None) -> tuple[Diagnostic, ...]:
    """Return one finding for each difference; none where all ranks agree."""
    return () if ranks is None else (*_of_collectives(ranks), *_of_graphs(ranks))


def _of_graphs(ranks: Ranks) -> Iterator[Diagnostic]:
    for row in ranks.differences:
        message = f"ranks compile different graphs: {difference_text(row)}"
        related = _related(row.other_span, f"{rank_names(row.others)}: {row.other_text}")
        yield Diagnostic("AL410", "warning", message, row.span or row.other_span, related)


def _of_collectives(ranks: Ranks) -> Iterator[Diagnostic]:
    for row in ranks.mismatches:
        message = f"ranks run different collectives: {mismatch_text(row)}"
        related = _related(row.other_span, f"rank {row.other}: {row.other_text}")
        yield Diagnostic("AL411", "error", message, row.span or row.other_span, related)


def _related(span: Span | None, message: str) -> tuple[Related, ...]:
    return () if span is None else (Related(span, message),)
