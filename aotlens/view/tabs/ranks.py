"""Ranks as lines: where they differ, which compiled what, which was slowest, and the collectives.

Words come from `aotlens.view.ranks`. Invariant: every line about an expression leads to it; a shortened list
shows its length.
"""

from collections.abc import Iterator, Sequence

from aotlens.model.ranks import Collective, PhaseImbalance, RankCompilation, Ranks
from aotlens.model.report import Span
from aotlens.model.spans import line_text
from aotlens.view.quantities import counted, human_bytes, human_seconds
from aotlens.view.ranks import difference_text, differing, mismatch_text, rank_names, ranks_summary
from aotlens.view.tabs.tables.rows import Line, Link, Part

__all__ = ["RANKS", "rank_tab_lines"]

RANKS = "Ranks"
MOST_ROWS = 20


def rank_tab_lines(ranks: Ranks) -> Iterator[Line]:
    """Mismatched collectives first, since they make a job hang; then everything else that is known."""
    yield Line((Part(ranks_summary(ranks), "ok" if ranks.agree else "warning"),))
    for mismatch in ranks.mismatches[:MOST_ROWS]:
        yield _sentence(mismatch_text(mismatch), "error", (mismatch.span, mismatch.other_span))
    yield from _rest(len(ranks.mismatches))
    for difference in ranks.differences[:MOST_ROWS]:
        yield _sentence(difference_text(difference), "warning", (difference.span, difference.other_span))
    yield from _rest(len(ranks.differences))
    different = differing(ranks)
    compilations = [row for row in ranks.compilations if ranks.agree or row.compile_id in different]
    yield from (_compilation(row) for row in compilations[:MOST_ROWS])
    yield from _rest(len(compilations))
    yield from (_phase(row) for row in ranks.phases[:MOST_ROWS])
    yield from _collectives(ranks.collectives)


def _sentence(text: str, role: str, spans: Sequence[Span | None]) -> Line:
    return Line((Part(text, role),), Link(tuple(span for span in spans if span is not None)), wrap=True)


def _compilation(row: RankCompilation) -> Line:
    parts = (
        Part(f"  {row.compile_id}  ", "dim"),
        Part(row.function, "name"),
        Part(f"  {rank_names(row.ranks)}"),
    )
    return _at(parts, row.span)


def _phase(row: PhaseImbalance) -> Line:
    seconds, median = human_seconds(row.slowest_s), human_seconds(row.median_s)
    return Line(
        (
            Part(f"  {row.phase}  ", "dim"),
            Part(f"slowest is rank {row.slowest} with {seconds}"),
            Part(f"  median {median}", "dim"),
        )
    )


def _collectives(collectives: Sequence[Collective]) -> Iterator[Line]:
    if not collectives:
        return
    total = human_bytes(sum(row.bytes or 0 for row in collectives))
    yield Line((Part(f"{counted(len(collectives), 'collective operation')}, {total} on each rank"),))
    for position, row in enumerate(collectives[:MOST_ROWS], start=1):
        size = "unknown size" if row.bytes is None else human_bytes(row.bytes)
        parts = (
            Part(f"  {position}  ", "dim"),
            Part(f"{row.op} {row.detail}".rstrip(), "name"),
            Part(f"  {row.tensor}  {size}"),
            Part(f"  {row.graph} {row.compile_id}", "dim"),
        )
        yield _at(parts, row.span)
    yield from _rest(len(collectives))


def _at(parts: tuple[Part, ...], span: Span | None) -> Line:
    if span is None:
        return Line(parts)
    return Line((*parts, Part(f"  {line_text(span)}", "dim")), Link((span,)))


def _rest(total: int) -> Iterator[Line]:
    if total > MOST_ROWS:
        yield Line((Part(f"  and {total - MOST_ROWS} more (aotlens inspect --full)", "dim"),))
