"""Two reports side by side as one self-contained page, made of the same parts as the page of one report."""

from collections.abc import Sequence

from aotlens._version import __version__
from aotlens.compare.side_by_side import SideBySide, SideRow, TargetPair
from aotlens.compare.step import StepChange, step_peak_text
from aotlens.render.html.build import filled_page
from aotlens.render.html.encode import Encoder, Json
from aotlens.view.tabs.fit import STEP_MEMORY
from aotlens.view.tabs.side_by_side import (
    changed_rows,
    pair_summary,
    side_details,
    side_listing,
    side_names,
    step_listing,
    step_peak_lines,
    summary_lines,
)
from aotlens.view.tabs.source.files import SourceStore

__all__ = ["comparison_page"]


def comparison_page(comparison: SideBySide) -> str:
    """Return the whole page; it reads no source file, since the lines' texts are in the reports."""
    encoder = Encoder(SourceStore(()))
    addresses: list[str] = []
    targets: list[Json] = []
    for pair in comparison.targets:
        addresses.append(pair.qualname)
        number = addresses.count(pair.qualname)
        address = pair.qualname if number == 1 else f"{pair.qualname}~{number}"
        targets.append(_target(comparison, pair, address, encoder))
    if comparison.step is not None:
        targets.append(_step(comparison.step, encoder))
    title = " → ".join(comparison.names)
    data: dict[str, object] = {
        "title": title,
        "made_by": f"aotlens {__version__}",
        "targets": targets,
        **encoder.tables(),
    }
    return filled_page(title, data)


def _target(comparison: SideBySide, pair: TargetPair, address: str, encoder: Encoder) -> Json:
    names = side_names(comparison, pair)
    changed = changed_rows(pair)
    items: list[object] = [
        _item("changed", f"changed lines {len(changed)}", changed, names, encoder),
        _item("all", f"all lines {len(pair.rows)}", pair.rows, names, encoder),
    ]
    lines: dict[str, object] = {"kind": "choice", "items": items, "first": 0 if changed else 1}
    tabs: list[object] = [
        {"id": "lines", "title": "Lines", "blocks": [lines]},
        {"id": "totals", "title": "Totals", "blocks": [encoder.lines_block(summary_lines(pair, names))]},
    ]
    return {
        "title": address,
        "address": address,
        "summary": pair_summary(pair),
        "span": -1,
        "tabs": tabs,
        "marks": [],
    }


def _item(
    name: str, title: str, rows: Sequence[SideRow], names: tuple[str, str], encoder: Encoder
) -> dict[str, object]:
    more: list[list[Json]] = [[encoder.lines(side_details(row, names))] for row in rows]
    return {"name": name, "title": title, "blocks": [encoder.table(side_listing(rows, names), more)]}


def _step(step: StepChange, encoder: Encoder) -> Json:
    items: list[object] = [
        {"name": name, "title": title, "blocks": [encoder.table(step_listing(parts))]}
        for name, title, parts in (("kinds", "by kind", step.kinds), ("lines", "by line", step.lines))
    ]
    choice: dict[str, object] = {"kind": "choice", "items": items, "first": 1}
    blocks: list[object] = [encoder.lines_block(step_peak_lines(step)), choice]
    return {
        "title": STEP_MEMORY,
        "address": "step",
        "summary": step_peak_text(step),
        "span": -1,
        "tabs": [{"id": "step", "title": STEP_MEMORY, "blocks": blocks}],
        "marks": [],
    }
