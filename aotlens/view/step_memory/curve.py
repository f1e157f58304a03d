"""The geometry of the step's curve: phases, ticks, peak and capacity, for whoever draws it.

Invariant: each column of the curve is the highest point of its part of the step, so no peak is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aotlens.model.fit import Fit, FitPhase, FitPoint
from aotlens.view.plots import buckets
from aotlens.view.quantities import human_bytes

__all__ = ["MOST_COLUMNS", "CurvePlot", "PhaseBand", "Tick", "curve_plot_of"]

MOST_COLUMNS = 800
MOST_TICKS = 5
LEAST_SHARE_OF_CAPACITY = 0.2
"""A peak below this share of the capacity is drawn without the capacity, which would flatten the curve."""


@dataclass(frozen=True, slots=True)
class PhaseBand:
    """A part of the step in one phase, as columns of the curve."""

    phase: FitPhase
    first: int
    end: int
    """The first column behind it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A value of the vertical axis with its label."""

    bytes: int
    label: str


@dataclass(frozen=True, slots=True)
class CurvePlot:
    """What a drawing of the curve shows."""

    columns: tuple[int, ...]
    """Live bytes of each part of the step."""
    bands: tuple[PhaseBand, ...]
    ticks: tuple[Tick, ...]
    top_bytes: int
    """The upper end of the vertical axis."""
    peak_column: int
    peak_label: str
    capacity_bytes: int | None = None
    """None without a GPU, or where the capacity is far above the curve."""
    capacity_label: str = ""
    """Empty without a GPU."""


def curve_plot_of(fit: Fit, width: int = MOST_COLUMNS) -> CurvePlot | None:
    """Return the curve in at most `width` columns; None for a step that allocates nothing."""
    if not fit.curve:
        return None
    columns = tuple(buckets([point.live_bytes for point in fit.curve], width))
    peak_bytes = max(columns)
    capacity_bytes, capacity_label = _capacity(fit, peak_bytes)
    top_bytes = max(peak_bytes, capacity_bytes or 0) or 1
    return CurvePlot(
        columns=columns,
        bands=_bands(fit.curve, len(columns)),
        ticks=_ticks(top_bytes),
        top_bytes=top_bytes,
        peak_column=columns.index(peak_bytes),
        peak_label=f"peak {human_bytes(fit.step_peak_bytes)}",
        capacity_bytes=capacity_bytes,
        capacity_label=capacity_label,
    )


def _capacity(fit: Fit, peak_bytes: int) -> tuple[int | None, str]:
    if fit.fits is None:
        return None, ""
    capacity_bytes = fit.fits.capacity_bytes
    label = f"{fit.fits.gpu}: {human_bytes(capacity_bytes)}"
    if peak_bytes < LEAST_SHARE_OF_CAPACITY * capacity_bytes:
        return None, f"{label}, far above this curve"
    return capacity_bytes, label


def _bands(curve: Sequence[FitPoint], columns: int) -> tuple[PhaseBand, ...]:
    """Return the phases in their order; each starts at the column of its first point."""
    starts: list[tuple[int, FitPhase]] = []
    for index, point in enumerate(curve):
        if not starts or starts[-1][1] != point.phase:
            starts.append((index * columns // len(curve), point.phase))
    ends = [start for start, _ in starts[1:]] + [columns]
    return tuple(
        PhaseBand(phase, first, end) for (first, phase), end in zip(starts, ends, strict=True) if end > first
    )


def _ticks(top_bytes: int) -> tuple[Tick, ...]:
    """Return round values: powers of two, or their multiples, at most `MOST_TICKS` above 0."""
    distance = 1
    while top_bytes // distance > MOST_TICKS:
        distance *= 2
    return tuple(Tick(value, human_bytes(value)) for value in range(0, top_bytes + 1, distance))
