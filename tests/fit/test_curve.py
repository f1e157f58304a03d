"""The curve of the step: its geometry, the SVG of the page, and the lines of the terminal app."""

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

from aotlens.model.fit import Fit, FitMoment, FitPoint
from aotlens.render.html.fit_svg import HEIGHT, WIDTH, curve_svg
from aotlens.view.step_memory.curve import CurvePlot, curve_plot_of
from aotlens.view.tabs.fit import fit_plot
from tests.fit.sample import GIB, MIB, on_gpu, sample_fit


def long_fit(points: int, peak_at: int) -> Fit:
    """A step whose curve has one high point, in its backward half."""
    curve = tuple(
        FitPoint(index, GIB if index == peak_at else MIB, "forward" if index < points // 2 else "backward")
        for index in range(points)
    )
    return Fit(GIB, FitMoment("backward", moment=peak_at), curve=curve)


def plotted(fit: Fit, width: int = 800) -> CurvePlot:
    plot = curve_plot_of(fit, width)
    assert plot is not None
    return plot


def drawn(plot: CurvePlot) -> ElementTree.Element:
    return ElementTree.fromstring(curve_svg(plot))


def test_no_column_loses_the_peak() -> None:
    plot = plotted(long_fit(100_000, 77_777), 300)
    assert len(plot.columns) == 300
    assert (plot.columns[plot.peak_column], plot.peak_column) == (GIB, 77_777 * 300 // 100_000)
    assert sum(column == MIB for column in plot.columns) == 299


def test_phases_cover_the_columns_in_their_order() -> None:
    plot = plotted(sample_fit())
    assert [band.phase for band in plot.bands] == ["forward", "backward", "optimizer"]
    assert (plot.bands[0].first, plot.bands[-1].end) == (0, len(plot.columns))
    assert all(before.end == after.first for before, after in pairwise(plot.bands))


def test_a_step_without_allocations_has_no_curve() -> None:
    assert curve_plot_of(Fit(0, FitMoment("setup"))) is None


def test_capacity_is_a_line_where_the_curve_comes_near_it() -> None:
    near, far = plotted(on_gpu(sample_fit(), 16 * MIB)), plotted(on_gpu(sample_fit(), 16 * GIB))
    assert (near.capacity_bytes, near.top_bytes) == (16 * MIB, 16 * MIB)
    assert (far.capacity_bytes, far.top_bytes) == (None, 12 * MIB)
    classes = [[shape.get("class") for shape in drawn(plot)] for plot in (near, far)]
    assert [("capacity" in names, "capacity-label" in names) for names in classes] == [
        (True, True),
        (False, True),
    ]
    assert "T4: 16.0 GiB, far above this curve" in [shape.text for shape in drawn(far)]


def test_drawing_names_phases_bytes_and_peak_and_stays_inside() -> None:
    shapes = list(drawn(plotted(sample_fit())))
    texts = [shape.text for shape in shapes if shape.text]
    assert {"forward", "backward", "optimizer", "peak 12.0 MiB", "0 B", "8.0 MiB"} <= set(texts)
    points = [
        (float(shape.get("x") or shape.get("x1") or shape.get("cx") or 0), shape.get("y") or shape.get("cy"))
        for shape in shapes
    ]
    assert all(0 <= across <= WIDTH and 0 <= float(height or 0) <= HEIGHT for across, height in points)


def test_labels_are_escaped() -> None:
    fit = on_gpu(sample_fit(), 16 * GIB)
    assert fit.fits is not None
    svg = curve_svg(plotted(replace(fit, fits=replace(fit.fits, gpu="<b>"))))
    assert "<b>" not in svg


def test_text_curve_has_the_peak_and_the_phases() -> None:
    lines = [line.text for line in fit_plot(long_fit(1000, 777), 63, 4)]
    assert len(lines) == 4 + 2
    assert lines[0] == f"{'1.0 GiB':>10} ┤{' ' * 38}█{' ' * 11}"
    assert lines[-1] == " " * 12 + f"{'forward':<25}backward"
