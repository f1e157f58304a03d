"""The step's memory by line, for front ends that show it beside the source.

Invariant: the totals of the lines and the bytes without a line add up to the peak.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aotlens.model.fit import Fit, FitLine
from aotlens.model.source import Span
from aotlens.view.quantities import human_bytes
from aotlens.view.step_memory.step import gpu_words

__all__ = ["LineTotal", "line_totals", "shown_totals", "step_span", "step_words"]

MOST_SHOWN = 12
LEAST_SHARE = 0.01
"""Of the peak: a line with less has no mark in the source."""


@dataclass(frozen=True, slots=True)
class LineTotal:
    """The bytes at the peak that one line allocated, of all kinds."""

    span: Span
    """The expression with the most bytes."""
    bytes: int
    rows: tuple[FitLine, ...]
    """By kind, the largest first."""

    @property
    def words(self) -> str:
        """`9.1 MiB at the step's peak`."""
        return f"{human_bytes(self.bytes)} at the step's peak"

    @property
    def kinds(self) -> tuple[str, ...]:
        """`4.6 MiB saved activation`, …"""
        return tuple(f"{human_bytes(row.bytes)} {row.kind}" for row in self.rows)


def line_totals(fit: Fit) -> tuple[LineTotal, ...]:
    """Return every line that allocated memory in use at the peak, the largest first."""
    lines: dict[tuple[str, int], list[FitLine]] = {}
    for row in fit.by_line:
        if row.span is not None:
            lines.setdefault((row.span.file, row.span.line), []).append(row)
    totals = [_total(rows) for rows in lines.values()]
    return tuple(sorted(totals, key=lambda total: -total.bytes))


def _total(rows: list[FitLine]) -> LineTotal:
    ordered = sorted(rows, key=lambda row: -row.bytes)
    span = ordered[0].span
    assert span is not None
    return LineTotal(span, sum(row.bytes for row in rows), tuple(ordered))


def shown_totals(fit: Fit) -> tuple[LineTotal, ...]:
    """Return the lines that are worth a mark in the source."""
    least_bytes = LEAST_SHARE * fit.step_peak_bytes
    return tuple(total for total in line_totals(fit)[:MOST_SHOWN] if total.bytes >= least_bytes)


def step_span(fit: Fit) -> Span | None:
    """Return the optimizer's step, or the line at the peak where no operator of an optimizer has a line."""
    return next(_optimizer_spans(fit), fit.at.span)


def _optimizer_spans(fit: Fit) -> Iterator[Span]:
    for row in fit.by_line:
        if row.kind == "optimizer state" and row.span is not None:
            yield row.span
    for point in fit.curve:
        if point.phase == "optimizer" and point.span is not None:
            yield point.span


def step_words(fit: Fit) -> str:
    """`step: 22.7 MiB at the peak, in the backward; fits T4: 38.0 MiB reserved of 15.2 GiB, …`."""
    parts = [f"step: {human_bytes(fit.step_peak_bytes)} at the peak, in the {fit.at.phase}"]
    if fit.fits is not None:
        parts.append(gpu_words(fit.fits))
    return "; ".join(parts)
