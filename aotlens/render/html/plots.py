"""A chart as plain data for the page's script, which stretches it to the room that it has."""

from aotlens.render.html.encode import Json
from aotlens.view.tabs.charts import SCALE, Axis, Chart

__all__ = ["chart_block"]


def chart_block(chart: Chart, role: str, rows: str = "") -> Json:
    """Return a chart; `rows` is the name of the table whose rows its points stand for."""
    points: list[object] = [[point.x, point.y] for point in chart.points]
    return {
        "kind": "chart",
        "role": role,
        "shape": chart.kind,
        "title": chart.title,
        "scale": SCALE,
        "x": _axis(chart.x),
        "y": _axis(chart.y),
        "points": points,
        "texts": [point.text for point in chart.points] if chart.kind == "points" else [],
        "marks": [[mark.kind, mark.x, mark.y, mark.text] for mark in chart.marks],
        "rows": rows,
    }


def _axis(axis: Axis) -> Json:
    return {"title": axis.title, "ticks": [[tick.position, tick.text] for tick in axis.ticks]}
