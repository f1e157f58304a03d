"""The curve of the step as SVG: bytes upwards, phases to the right, the peak and the GPU's capacity marked.

Invariant: the drawing is plain SVG with the page's own classes, so it needs no script and follows the theme.
"""

from collections.abc import Iterator
from html import escape

from aotlens.view.step_memory.curve import CurvePlot

__all__ = ["curve_svg"]

WIDTH, HEIGHT = 900, 260
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 26, 28
"""The margins in which the axes' labels are drawn."""
NAME_WIDTH = 7
"""Of one letter of a phase's name; a band that is narrower than its name has none."""
LABEL_ROOM = 120
"""Room for the label of the peak; closer to the right edge it is drawn to the left of its mark."""


def curve_svg(plot: CurvePlot) -> str:
    """Return one `svg` element."""
    parts = "".join((*_bands(plot), *_ticks(plot), _area(plot), *_capacity(plot), *_peak(plot)))
    label = escape(f"live bytes over the step; {plot.peak_label}")
    return (
        f'<svg class="fit-curve" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}">{parts}</svg>'
    )


def _x(plot: CurvePlot, column: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * column / max(1, len(plot.columns)), 1)


def _y(plot: CurvePlot, size_bytes: int) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * size_bytes / plot.top_bytes, 1)


def _area(plot: CurvePlot) -> str:
    steps = "".join(
        f"L{_x(plot, column)} {_y(plot, size_bytes)}L{_x(plot, column + 1)} {_y(plot, size_bytes)}"
        for column, size_bytes in enumerate(plot.columns)
    )
    floor = _y(plot, 0)
    return f'<path class="area" d="M{LEFT} {floor}{steps}L{_x(plot, len(plot.columns))} {floor}Z"/>'


def _bands(plot: CurvePlot) -> Iterator[str]:
    """Yield each phase: a line where it begins, and its name below."""
    floor = HEIGHT - BOTTOM
    for number, band in enumerate(plot.bands):
        first, end = _x(plot, band.first), _x(plot, band.end)
        if number:
            yield f'<line class="edge" x1="{first}" x2="{first}" y1="{TOP}" y2="{floor}"/>'
        if end - first >= NAME_WIDTH * len(band.phase):
            middle = round((first + end) / 2, 1)
            yield f'<text x="{middle}" y="{floor + 18}" text-anchor="middle">{escape(band.phase)}</text>'


def _ticks(plot: CurvePlot) -> Iterator[str]:
    for tick in plot.ticks:
        height = _y(plot, tick.bytes)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>'
        yield f'<text x="{LEFT - 6}" y="{height + 4}" text-anchor="end">{escape(tick.label)}</text>'


def _capacity(plot: CurvePlot) -> Iterator[str]:
    """Yield the GPU's capacity as a line, or only as a label where it is far above the curve."""
    if not plot.capacity_label:
        return
    height = TOP if plot.capacity_bytes is None else _y(plot, plot.capacity_bytes)
    if plot.capacity_bytes is not None:
        yield f'<line class="capacity" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>'
    text = escape(plot.capacity_label)
    yield f'<text class="capacity-label" x="{LEFT + 4}" y="{height - 8}">{text}</text>'


def _peak(plot: CurvePlot) -> Iterator[str]:
    across, height = _x(plot, plot.peak_column + 0.5), _y(plot, plot.columns[plot.peak_column])
    is_at_edge = across > WIDTH - RIGHT - LABEL_ROOM
    anchor, label_x = ("end", across - 8) if is_at_edge else ("start", across + 8)
    yield f'<circle class="peak" cx="{across}" cy="{height}" r="4"/>'
    yield (
        f'<text class="peak-label" x="{label_x}" y="{height - 8}" text-anchor="{anchor}">'
        f"{escape(plot.peak_label)}</text>"
    )
