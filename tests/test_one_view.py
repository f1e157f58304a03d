"""One report has the same counts and totals in text, on the HTML page, in the terminal app and in a hover."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from aotlens.model import Partition, Report, SavedValue
from aotlens.render.html.build import html_page
from aotlens.render.text.report import Shown, report_text
from aotlens.view.saved import alive_anyway, owning, recomputed_total, saved_total
from aotlens.view.tabs.overview import overview
from aotlens.view.tabs.saved import totals
from lsp_server.translate.hover import function_text
from tests.report.sample import chosen_partition, sample_report, span, tensor, training_target

LAYERS = 12


def layered_report() -> Report:
    """Twelve identical layers that save two values each, and what is alive anyway."""
    chosen = chosen_partition()
    wide = SavedValue("relu", tensor("f32[512, 256]"), 1 << 19, "new", "cheap", span("x + self.down(gated)"))
    free = replace(wide, node="weight", bytes=0, owner="parameter")
    layers = tuple(
        replace(value, node=f"{value.node}_{layer}", layer=f"h.{layer}")
        for layer in range(LAYERS)
        for value in (wide, replace(wide, node="gelu", bytes=1 << 18), free)
    )
    saved = (*chosen.saved, *layers)
    partition = replace(chosen, saved=saved, saved_bytes=sum(value.bytes for value in saved))
    return replace(sample_report(), targets=(replace(training_target(), partition=partition),))


def in_text(report: Report) -> str:
    return report_text(report, Shown(is_full=True))


def on_the_page(report: Report) -> str:
    return html_page(report, "model.py")


def in_the_app(report: Report) -> str:
    target = report.targets[0]
    shown = overview(report, target)
    return "\n".join([totals(target).text, *(line.text for line in shown.facts)])


def in_a_hover(report: Report) -> str:
    return function_text(report.targets[0])


@pytest.mark.parametrize("front_end", [in_text, on_the_page, in_the_app, in_a_hover])
def test_saved_and_recomputed_values_are_counted_alike(front_end: Callable[[Report], str]) -> None:
    report = layered_report()
    partition = report.targets[0].partition
    assert partition is not None
    assert len(owning(partition)) == sum(value.bytes > 0 for value in partition.saved) > LAYERS
    shown = " ".join(front_end(report).split())
    for total in (saved_total(partition), recomputed_total(partition)):
        # The page holds the parts of a line, which have colours of their own, one by one.
        parts = total.split(" in ") if front_end is on_the_page else [total]
        assert [part for part in parts if part not in shown] == []
    assert f"in {len(partition.saved)} values" not in shown


def test_what_is_alive_anyway_is_counted_apart() -> None:
    partition = layered_report().targets[0].partition
    assert isinstance(partition, Partition)
    assert len(owning(partition)) + len(alive_anyway(partition)) == len(partition.saved)
