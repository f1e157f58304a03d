"""The memory of the step as lines and rows: kinds, lines and operators; the words are those of
`aotlens.view.step_memory`.

Invariant: every line about an expression leads to it, and the rows of each table add up to the peak.
"""

from collections.abc import Iterator, Sequence

from aotlens.model.fit import Distribution, Fit, FitLine, FitPoint, KindBytes, kind_name
from aotlens.model.memory_snapshot import FailureMatch, MemorySnapshot
from aotlens.model.source import Span
from aotlens.model.spans import line_of, texts
from aotlens.view.names import without_default
from aotlens.view.plots import bar, plot
from aotlens.view.quantities import human_bytes, percent
from aotlens.view.step_memory.advice import ADVICE, advice_rows, plan_lines
from aotlens.view.step_memory.failures import avoided_lines, match_lines
from aotlens.view.step_memory.largest import largest_lines
from aotlens.view.step_memory.ranks import collective_lines, collectives_summary, rank_fit_lines, ranks_words
from aotlens.view.step_memory.snapshots import snapshot_lines
from aotlens.view.step_memory.step import (
    gpu_lines,
    kind_rows,
    line_rows,
    peak_words,
    phase_words,
    ran_words,
    run_phase_words,
)
from aotlens.view.tabs.tables.rows import (
    NO_LINK,
    Cells,
    Column,
    LazyRows,
    Line,
    Link,
    Listing,
    Part,
    size_part,
)

__all__ = [
    "STEP_MEMORY",
    "failure_lines",
    "fit_kind_listing",
    "fit_line_listing",
    "fit_notes",
    "fit_plot",
    "fit_summary",
    "operator_listing",
]

STEP_MEMORY = "Step memory"
BAR_WIDTH = 12
LABEL_WIDTH = 10
NOTHING = "no operator allocates memory"
MOST_OPERATORS = 200
"""Rows of the table of operators; a step of a large model has tens of thousands."""

KIND_WIDTH, STATE_WIDTH = 16, 26
"""Cells of `saved activation` and `optimizer state exp_avg_sq`: the bars are dropped before a kind is cut."""

KIND_COLUMNS = (
    Column("at the peak", widest=11, narrowest=11, align="right", largest_first=True),
    Column("share", widest=6, narrowest=4, align="right", drop=1),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=3),
    Column("kind", widest=40, narrowest=STATE_WIDTH, grows=True),
    Column("storages", widest=14, narrowest=8, align="right", drop=2),
)
LINE_COLUMNS = (
    Column("at the peak", widest=11, narrowest=11, align="right", largest_first=True),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=3),
    Column("kind", widest=18, narrowest=KIND_WIDTH, drop=2),
    Column("expression", widest=60, narrowest=12, grows=True),
    Column("line", widest=40, narrowest=4, align="right"),
)
OPERATOR_COLUMNS = (
    Column("live", widest=9, narrowest=9, align="right", largest_first=True),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=3),
    Column("operator", widest=40, narrowest=12, grows=True),
    Column("phase", widest=12, narrowest=4, drop=2),
    Column("line", widest=40, narrowest=4, align="right"),
)


def fit_summary(fit: Fit, incomplete: str | None = None) -> Iterator[Line]:
    """Yield the peak, the plan for a target, how they were computed, whether it fits, and the phases' peaks.

    `incomplete` is why the figures may be wrong.
    """
    if incomplete is not None:
        yield Line((Part(f"Incomplete: {incomplete}", "error"),), wrap=True)
    yield Line((Part(peak_words(fit), "title"),), _link(fit.at.span), wrap=True)
    yield from _plan(fit)
    if not fit.curve:
        return
    yield Line((Part(f"  {ran_words(fit)}", "dim"),), wrap=True)
    if fit.distribution is not None:
        yield Line((Part(f"  {ranks_words(fit.distribution)}"),), wrap=True)
    if fit.fits is not None:
        first, *rest = gpu_lines(fit.fits)
        yield Line((Part(first, "ok" if fit.fits.ok else "error"),), wrap=True)
        yield from (Line((Part(text, "dim"),), wrap=True) for text in rest)
    if fit.batch is not None:
        first, *rest = largest_lines(fit.batch)
        yield Line((Part(first, "ok" if fit.batch.largest else "error"),), wrap=True)
        yield from (Line((Part(text, "dim"),), wrap=True) for text in rest)
    yield Line((Part(phase_words(fit)),), wrap=True)
    if fit.run_phases:
        yield Line((Part(run_phase_words(fit)),), wrap=True)


def _plan(fit: Fit) -> Iterator[Line]:
    """Yield the edits that reach a target; each leads to the lines that the plan changes."""
    if fit.plan is None:
        return
    link = Link(tuple(edit.span for edit in fit.plan.edits))
    first, *rest = plan_lines(fit.plan)
    yield Line((Part(first, "ok" if fit.plan.is_reached else "warning"),), link, wrap=True)
    yield from (Line((Part(text),), link, wrap=True) for text in rest)


def _distribution(distribution: Distribution) -> Iterator[Line]:
    """Yield the ranks and collectives of a distributed script; each collective leads to its line."""
    yield Line((Part("Ranks", "heading"),))
    yield from (Line((Part(f"  {text}"),), wrap=True) for text in rank_fit_lines(distribution))
    yield Line((Part(collectives_summary(distribution), "heading"),), wrap=True)
    for text, span in collective_lines(distribution.collectives, None):
        yield Line((Part(f"  {text}"),), _link(span))


def fit_notes(fit: Fit) -> Iterator[Line]:
    """Yield tested advice, which leads to its edits, the ranks, and the assumptions of the prediction."""
    yield from _advice(fit)
    if fit.distribution is not None:
        yield from _distribution(fit.distribution)
    if fit.assumptions:
        yield Line((Part("Assumptions", "heading"),))
    yield from (Line((Part(f"  - {text}", "dim"),), wrap=True) for text in fit.assumptions)


def _advice(fit: Fit) -> Iterator[Line]:
    if fit.advice:
        yield Line((Part(ADVICE, "heading"),), wrap=True)
    for row in fit.advice:
        link = Link(tuple(edit.span for edit in row.edits))
        first, *rest = advice_rows(row)
        yield Line((Part(first, "ok"),), link, wrap=True)
        yield from (Line((Part(text, "dim"),), link, wrap=True) for text in rest)


def failure_lines(snapshots: Sequence[MemorySnapshot], matches: Sequence[FailureMatch]) -> Iterator[Line]:
    """Yield who held memory when an allocation failed, and the edits that would have avoided it."""
    for snapshot in snapshots:
        first, *rest = snapshot_lines(snapshot)
        yield Line((Part(first, "title" if snapshot.failure is None else "error"),), wrap=True)
        yield from (Line((Part(text),)) for text in rest)
    for match in matches:
        first, *rest = match_lines(match)
        yield Line((Part(first, "heading"),), _link(match.predicted_at.span), wrap=True)
        yield from (Line((Part(text),)) for text in rest)
        edits = () if match.avoided_by is None else match.avoided_by.edits
        link = Link(tuple(edit.span for edit in edits)) if edits else NO_LINK
        yield from (Line((Part(text),), link, wrap=True) for text in avoided_lines(match))


def fit_kind_listing(fit: Fit) -> Listing:
    """Return the bytes at the peak by kind, the largest first."""
    rows = dict(zip(fit.by_kind, kind_rows(fit.by_kind), strict=True))
    largest = max((row.bytes for row in fit.by_kind), default=0)

    def cells_of(record: KindBytes) -> Cells:
        row = rows[record]
        return (
            size_part(row.size_bytes),
            Part(percent(row.size_bytes / max(1, fit.step_peak_bytes)), "dim"),
            Part(bar(row.size_bytes, largest, BAR_WIDTH), "saved"),
            Part(row.what, "name"),
            Part(row.detail, "dim"),
        )

    records = LazyRows(
        fit.by_kind,
        lambda row: f"kind:{kind_name(row)}",
        cells_of,
        lambda row: f"{row.kind} {row.state}",
        lambda row: NO_LINK,
    )
    return Listing(KIND_COLUMNS, records, NOTHING)


def fit_line_listing(fit: Fit, home: str | None = None) -> Listing:
    """Return the bytes at the peak by the line that allocated them, the largest first."""
    words = dict(zip(fit.by_line, line_rows(fit.by_line, None), strict=True))
    largest = max((row.bytes for row in fit.by_line), default=0)
    text_at = texts()

    def expression(row: FitLine) -> str:
        return words[row].detail if row.span is None else row.text or text_at(row.span)

    def cells_of(row: FitLine) -> Cells:
        return (
            size_part(row.bytes),
            Part(bar(row.bytes, largest, BAR_WIDTH), "saved"),
            words[row].what,
            Part(expression(row), "name"),
            Part(line_of(row.span, home), "place"),
        )

    records = LazyRows(
        fit.by_line,
        lambda row: f"line:{row.kind}/{line_of(row.span)}",
        cells_of,
        lambda row: f"{row.kind} {expression(row)} {line_of(row.span, home)}",
        lambda row: _link(row.span),
    )
    return Listing(LINE_COLUMNS, records, NOTHING)


def operator_listing(fit: Fit, home: str | None = None) -> Listing:
    """Return the points of the curve with the most live bytes, the highest first."""
    points = sorted(fit.curve, key=lambda point: -point.live_bytes)[:MOST_OPERATORS]

    def cells_of(point: FitPoint) -> Cells:
        return (
            size_part(point.live_bytes, "warning" if point.moment == fit.at.moment else ""),
            Part(bar(point.live_bytes, fit.step_peak_bytes, BAR_WIDTH), "saved"),
            Part(without_default(point.op) or "a tensor that no operator created", "name"),
            point.phase,
            Part(line_of(point.span, home), "place"),
        )

    records = LazyRows(
        tuple(points),
        lambda point: f"operator:{point.moment}",
        cells_of,
        lambda point: f"{point.op} {point.phase} {line_of(point.span, home)}",
        lambda point: _link(point.span),
    )
    return Listing(OPERATOR_COLUMNS, records, NOTHING)


def fit_plot(fit: Fit, width: int, height: int) -> Iterator[Line]:
    """Yield the curve over the step, with the phases below it."""
    cells = max(1, width - LABEL_WIDTH - 3)
    rows = plot([point.live_bytes for point in fit.curve], cells, height)
    for number, row in enumerate(rows):
        label = human_bytes(fit.step_peak_bytes) if number == 0 else ""
        yield Line((Part(f"{label:>{LABEL_WIDTH}} {'┤' if label else '│'}", "dim"), Part(row, "saved")))
    if rows:
        shown = len(rows[0])
        yield Line((Part(f"{'0 B':>{LABEL_WIDTH}} ┼{'─' * shown}", "dim"),))
        yield Line((Part(" " * (LABEL_WIDTH + 2) + _phase_names(fit.curve, shown), "dim"),))


def _phase_names(curve: Sequence[FitPoint], cells: int) -> str:
    """Return the name of each phase at the cell where it begins; one without room is left out."""
    text = ""
    for index, point in enumerate(curve):
        if index and curve[index - 1].phase == point.phase:
            continue
        start = index * cells // len(curve)
        if not text or start > len(text):
            text = f"{text:<{start}}{point.phase}"
    return text


def _link(span: Span | None) -> Link:
    return Link((span,)) if span is not None else NO_LINK
