"""Other choices of what to save, as text: the budget, the frontier, and the answers to what-ifs."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from aotlens.model.partition import Partition, WhatIf
from aotlens.render.text.layout import Page, Row, heading, paragraph, table
from aotlens.view.partition.frontier import FrontierRow, frontier_rows
from aotlens.view.partition.reasons import listed, named, solver_choice_label
from aotlens.view.quantities import change_text, counted, human_bytes, human_flops

FRONTIER_ROWS = 8
CHOSEN = "◀ this one"


def tradeoff_lines(partition: Partition, page: Page) -> Iterator[Text]:
    """Yield the frontier, of which a short page shows the ends; then each what-if."""
    width = page.width
    rows = frontier_rows(partition, FRONTIER_ROWS)
    if len(rows) > 1 and not page.is_full:
        yield from paragraph(_ends(rows, len(partition.frontier)), width, "  ", "dim")
    elif len(rows) > 1:
        yield Text()
        points = counted(len(partition.frontier), "choice")
        yield heading("Frontier", f"{points}, each with the least recomputation for its bytes")
        cells = [("saved", "recomputed", "")]
        cells += [
            (human_bytes(row.saved_bytes), human_flops(row.recompute_flops), CHOSEN if row.chosen else "")
            for row in rows
        ]
        styles = [("dim", "dim")] + [("yellow", "", "bold") if row.chosen else ("", "") for row in rows]
        yield from table(
            [Row(row, style) for row, style in zip(cells, styles, strict=True)], width, frozenset({0, 1})
        )
    for answer in partition.what_if:
        yield Text()
        yield from what_if_lines(answer, partition, width)


def _ends(rows: Sequence[FrontierRow], choices: int) -> str:
    """Return `32 choices, from 1.7 MiB saved and 11.1 GFLOP recomputed to 72.4 MiB and 0 FLOP`."""
    first, last = rows[0], rows[-1]
    least = f"{human_bytes(first.saved_bytes)} saved and {human_flops(first.recompute_flops)} recomputed"
    most = f"{human_bytes(last.saved_bytes)} and {human_flops(last.recompute_flops)}"
    return f"{counted(choices, 'choice')}, from {least} to {most}"


def what_if_lines(answer: WhatIf, partition: Partition, width: int) -> Iterator[Text]:
    """Yield the totals after the change beside those before it; for a log, beside our solver's choice."""
    own = partition.own
    compared = "" if own is None else f", compared with {solver_choice_label(own)}"
    yield heading("What if", f"{answer.change}{compared}")
    before, after = answer.before, answer.after
    rows = (
        ("saved", before.saved_bytes, after.saved_bytes, human_bytes),
        ("recomputed", before.recompute_flops, after.recompute_flops, human_flops),
        ("predicted peak", before.peak_bytes, after.peak_bytes, human_bytes),
    )
    styles = ("dim", "", "dim", "", "yellow")
    cells = [
        (name, write(old), "→", write(new), change_text(new - old, write)) for name, old, new, write in rows
    ]
    yield from table([Row(row, styles) for row in cells], width, frozenset({1, 3}))
    for title, names in (("no longer saved", answer.no_longer_saved), ("newly saved", answer.newly_saved)):
        if names:
            yield from paragraph(f"{title}: {listed(named(names, partition))}", width, "  ", "dim")
