"""Charts: positions, ticks and marks, without a browser."""

from dataclasses import replace

from aotlens.model.report import FrontierPoint, Memory, Partition
from aotlens.view.tabs.charts import SCALE, Tick, frontier_chart, memory_chart
from tests.report.sample import inference_target, training_target

MIB = 1 << 20


def test_the_memory_chart_marks_peak_and_border() -> None:
    curve = (("a", 3 * MIB), ("b", 10 * MIB), ("c", MIB), ("d", 0))
    memory = Memory(
        peak_bytes=10 * MIB,
        peak_node="b",
        peak_phase="forward",
        peak_span=None,
        held_bytes=MIB,
        forward_nodes=2,
        curve=curve,
        live_at_peak=(),
    )
    chart = memory_chart(replace(training_target(), memory=memory))
    assert chart is not None
    assert [point.x for point in chart.points] == [0, 2500, 5000, 7500]
    assert max(point.y for point in chart.points) == chart.marks[0].y < SCALE
    assert [mark.text for mark in chart.marks] == ["peak 10.0 MiB: b", "backward starts, 1.0 MiB held"]
    assert chart.marks[1].x == 5000
    assert [tick.text for tick in chart.y.ticks] == [
        "0 B",
        "2.0 MiB",
        "4.0 MiB",
        "6.0 MiB",
        "8.0 MiB",
        "10.0 MiB",
    ]


def test_the_frontier_chart_marks_the_compiled_choice() -> None:
    points = (FrontierPoint(MIB, 1_000_000), FrontierPoint(4 * MIB, 1000), FrontierPoint(8 * MIB, 0))
    chart = frontier_chart(Partition("min-cut", (), (), 8 * MIB, frontier=points))
    assert chart is not None
    assert chart.y.title == "recomputed work, log scale"
    assert [tick.text for tick in chart.y.ticks] == [
        "0 FLOP",
        "1.0 kFLOP",
        "10.0 kFLOP",
        "100.0 kFLOP",
        "1.0 MFLOP",
    ]
    assert chart.points[0].text == "saves 1.0 MiB, recomputes 1.0 MFLOP"
    mark = chart.marks[0]
    assert (mark.kind, mark.y, mark.x) == ("chosen", 0, chart.points[-1].x)
    heights = [point.y for point in chart.points]
    assert heights == sorted(heights, reverse=True)


def test_few_flops_have_a_linear_scale() -> None:
    points = (FrontierPoint(MIB, 40), FrontierPoint(2 * MIB, 10))
    chart = frontier_chart(Partition("min-cut", (), (), MIB, frontier=points))
    assert chart is not None
    assert chart.y.title == "recomputed work"
    assert [tick.text for tick in chart.y.ticks] == ["0 FLOP", "10 FLOP", "20 FLOP", "30 FLOP", "40 FLOP"]


def test_ticks_stay_inside_of_the_axis() -> None:
    for length in (1, 2, 7, 99, 416, 54_321):
        curve = tuple((f"n{number}", number) for number in range(length))
        sample = training_target()
        assert sample.memory is not None
        memory = replace(sample.memory, curve=curve, peak_bytes=length - 1, forward_nodes=0)
        chart = memory_chart(replace(sample, memory=memory))
        assert chart is not None
        ticks: tuple[Tick, ...] = (*chart.x.ticks, *chart.y.ticks)
        assert all(0 <= tick.position <= SCALE for tick in ticks)
        assert len(chart.x.ticks) <= 7
        assert len({tick.text for tick in chart.x.ticks}) == len(chart.x.ticks)


def test_a_target_without_a_curve_has_no_chart() -> None:
    assert memory_chart(replace(inference_target(), memory=None)) is None
    assert frontier_chart(Partition("min-cut", (), (), 0)) is None
