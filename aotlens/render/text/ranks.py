"""The section on ranks: which compiled what, where they differ, which was slowest, and the collectives.

Invariant: a shortened list shows its length; a short page has one line where all ranks agree.
"""

from collections.abc import Iterator, Sequence

from rich.text import Text

from aotlens.model.ranks import Collective, Ranks
from aotlens.model.source import Span
from aotlens.model.spans import location
from aotlens.render.text.layout import Page, Row, heading, paragraph, rule, table
from aotlens.view.quantities import counted, human_bytes, human_seconds
from aotlens.view.ranks import difference_text, differing, mismatch_text, rank_names, ranks_summary

__all__ = ["rank_lines"]

FEW = 8
FEW_PHASES = 4
PAIR = 2
"""Ranks that differ are shown beside one another on the shortest page too."""


def rank_lines(ranks: Ranks, page: Page) -> Iterator[Text]:
    """Yield the whole section."""
    yield rule("Ranks", ranks_summary(ranks), page.width)
    for lines in (
        _mismatches(ranks, page),
        _differences(ranks, page),
        _compilations(ranks, page),
        _phases(ranks, page),
        _collectives(ranks.collectives, page),
    ):
        section = tuple(lines)
        if section:
            yield from section
            yield Text()


def _mismatches(ranks: Ranks, page: Page) -> Iterator[Text]:
    if ranks.mismatches:
        yield heading(
            "Different collectives", "these ranks wait for each other forever, or mix up their data"
        )
    for mismatch in page.first(ranks.mismatches, FEW):
        yield from paragraph(mismatch_text(mismatch), page.width, "  ", "bold red")
        yield from _rank_locations(((mismatch.rank, mismatch.span), (mismatch.other, mismatch.other_span)))


def _differences(ranks: Ranks, page: Page) -> Iterator[Text]:
    shown = page.first(ranks.differences, FEW)
    if shown:
        yield heading("Different graphs", "the first node that differs")
    for difference in shown:
        yield from paragraph(difference_text(difference), page.width, "  ", "yellow")
        yield from _rank_locations(
            ((difference.ranks[0], difference.span), (difference.others[0], difference.other_span))
        )
    yield from _rest(len(ranks.differences), len(shown), page)


def _rank_locations(sides: Sequence[tuple[int, Span | None]]) -> Iterator[Text]:
    for rank, span in sides:
        if span is not None:
            yield Text(f"      rank {rank}: {location(span)}", "dim")


def _compilations(ranks: Ranks, page: Page) -> Iterator[Text]:
    if ranks.agree and not page.is_full:
        return
    different = differing(ranks)
    wanted = [row for row in ranks.compilations if page.is_full or row.compile_id in different]
    shown = wanted if page.is_full else wanted[: max(PAIR, page.few(FEW))]
    if shown:
        yield heading("Compiled by")
    yield from table(
        [
            Row(
                (row.compile_id, row.function, rank_names(row.ranks), location(row.span) if row.span else ""),
                ("", "cyan", "", "dim"),
            )
            for row in shown
        ],
        page.width,
    )
    yield from _rest(len(wanted), len(shown), page)


def _phases(ranks: Ranks, page: Page) -> Iterator[Text]:
    shown = page.first(ranks.phases, FEW_PHASES)
    if shown:
        yield heading("Slowest rank in each phase of compilation")
    yield from table(
        [
            Row(
                (
                    row.phase,
                    f"rank {row.slowest}",
                    human_seconds(row.slowest_s),
                    f"median {human_seconds(row.median_s)}",
                )
            )
            for row in shown
        ],
        page.width,
        frozenset({2}),
    )


def _collectives(collectives: Sequence[Collective], page: Page) -> Iterator[Text]:
    shown = page.first(collectives, FEW)
    if not shown:
        return
    total = sum(row.bytes or 0 for row in collectives)
    yield heading(
        "Collectives", f"{counted(len(collectives), 'operation')}, {human_bytes(total)} on each rank"
    )
    yield from table(
        [
            Row(
                (
                    str(position),
                    f"{row.op} {row.detail}".rstrip(),
                    row.tensor,
                    "unknown" if row.bytes is None else human_bytes(row.bytes),
                    f"{row.graph} {row.compile_id}",
                    location(row.span) if row.span else "",
                ),
                ("", "cyan", "", "yellow", "", "dim"),
            )
            for position, row in enumerate(shown, start=1)
        ],
        page.width,
        frozenset({0, 3}),
    )
    yield from _rest(len(collectives), len(shown), page)


def _rest(total: int, shown: int, page: Page) -> Iterator[Text]:
    if total > shown:
        yield Text(f"  and {total - shown} more ({page.rest})", "dim")
