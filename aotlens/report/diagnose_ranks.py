"""Findings about ranks of one run: AL410 and AL411."""

from collections.abc import Iterator

from aotlens.report.rank_records import Ranks
from aotlens.report.rank_words import difference_text, mismatch_text, rank_names
from aotlens.report.records import Diagnostic, Related
from aotlens.report.source_records import Span

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
