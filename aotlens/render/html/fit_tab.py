"""The tabs of a report by `aotlens fit`: the curve with tables by kind, line and operator; a snapshot."""

from collections.abc import Iterator

from aotlens.model.fit import Fit
from aotlens.model.report import Report
from aotlens.render.html.encode import Encoder, Json
from aotlens.render.html.fit_svg import curve_svg
from aotlens.view.quantities import human_bytes
from aotlens.view.step_memory.curve import curve_plot_of
from aotlens.view.step_memory.lines import line_totals
from aotlens.view.step_memory.snapshots import snapshot_lines
from aotlens.view.step_memory.step import peak_words
from aotlens.view.tabs.fit import (
    STEP_MEMORY,
    failure_lines,
    fit_kind_listing,
    fit_line_listing,
    fit_notes,
    fit_summary,
    operator_listing,
)

__all__ = ["fit_target", "snapshot_target"]

SNAPSHOT = "Memory snapshot"


def fit_target(report: Report, fit: Fit, encoder: Encoder) -> Json:
    """Return the step in the form of a target, for a report without targets."""
    tabs: list[Json] = [{"id": "fit", "title": STEP_MEMORY, "blocks": list(_blocks(report, fit, encoder))}]
    if report.memory_snapshots:
        tabs.insert(0, _snapshot_tab(report, encoder))
    span = next((row.span for row in fit.by_line if row.span is not None), None)
    return {
        "title": STEP_MEMORY,
        "address": "step",
        "summary": peak_words(fit),
        "span": encoder.span(span) if span is not None else -1,
        "tabs": tabs,
        "marks": list(_marks(fit, encoder)),
    }


def snapshot_target(report: Report, encoder: Encoder) -> Json:
    """Return a memory snapshot in the form of a target, for a report without a script."""
    return {
        "title": SNAPSHOT,
        "address": "snapshot",
        "summary": next(snapshot_lines(report.memory_snapshots[0])),
        "span": -1,
        "tabs": [_snapshot_tab(report, encoder)],
        "marks": [],
    }


def _snapshot_tab(report: Report, encoder: Encoder) -> Json:
    lines = failure_lines(report.memory_snapshots, report.failure_matches)
    blocks = [{"kind": "lines", "lines": encoder.lines(lines)}]
    return {"id": "snapshot", "title": SNAPSHOT, "blocks": blocks}


def _blocks(report: Report, fit: Fit, encoder: Encoder) -> Iterator[Json]:
    yield {"kind": "lines", "lines": encoder.lines(fit_summary(fit, report.incomplete))}
    plot = curve_plot_of(fit)
    if plot is None:
        return
    yield {"kind": "svg", "svg": curve_svg(plot)}
    tables = (
        ("kinds", "by kind", fit_kind_listing(fit)),
        ("lines", "by line", fit_line_listing(fit)),
        ("operators", "highest points", operator_listing(fit)),
    )
    items: list[object] = [
        {"name": name, "title": title, "blocks": [encoder.table(listing)]} for name, title, listing in tables
    ]
    yield {"kind": "choice", "items": items, "first": 1}
    yield {"kind": "lines", "lines": encoder.lines(fit_notes(fit))}


def _marks(fit: Fit, encoder: Encoder) -> Iterator[list[object]]:
    """Yield the bytes at the peak of each line, in the form of the marks of a target."""
    for total in line_totals(fit):
        file = encoder.files.get(total.span.file)
        if file is not None:
            yield [file, total.span.line, human_bytes(total.bytes), 0, 0, ""]
