"""The output of `aotlens why --forecast` and `--vary`."""

from collections.abc import Iterator

from rich.text import Text

from aotlens.model.dynamo import Dynamo
from aotlens.model.recompilations import Forecast, ForecastAxis
from aotlens.model.spans import location
from aotlens.render.text.layout import Page, Row, paragraph, table
from aotlens.view.forecast import (
    axis_title,
    call_rows,
    failed_guards,
    forecast_summary,
    recompiling,
    remedy_words,
)

__all__ = ["forecast_lines"]

_INDENT = "     "


def forecast_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield each function with its recompiling axes, then the others."""
    yield Text.assemble(("aotlens: ", "bold"), (forecast_summary(dynamo), "bold"))
    for entry in dynamo.forecasts:
        yield Text.assemble((entry.function, "bold"), f"  {location(entry.span)}")
        yield from paragraph(
            f"called with {', '.join(entry.arguments) or 'nothing'}", page.width, "  ", "dim"
        )
        for axis in entry.axes:
            if axis.kind == "asked" and not axis.error:
                yield from _asked_lines(axis, page)
        yield from _recompiling_lines(entry, page)
        yield from _other_lines(entry, page)


def _asked_lines(axis: ForecastAxis, page: Page) -> Iterator[Text]:
    """Yield what `--vary` asked for: each value, and whether it recompiles."""
    others = f", with {', '.join(axis.with_names)}" if axis.with_names else ""
    yield Text(f"  {axis.name}{others}")
    rows = [
        Row((row.value, row.words, "" if row.span is None else location(row.span)), ("bold", "", "dim"))
        for row in call_rows(axis)
    ]
    yield from table(rows, page.width)
    if words := remedy_words(axis):
        yield from paragraph(f"→ {words}", page.width, "  ", "green")


def _recompiling_lines(entry: Forecast, page: Page) -> Iterator[Text]:
    for axis in recompiling(entry):
        if axis.kind == "asked":
            continue
        yield Text.assemble("  ", (axis_title(axis), "bold yellow"))
        for failed in failed_guards(entry, axis):
            where = "" if failed.span is None else f"  {location(failed.span)}"
            inside = "" if failed.function == entry.function else f" in {failed.function}"
            yield from paragraph(f"{failed.words}{inside}{where}", page.width, _INDENT)
        if words := remedy_words(axis):
            yield from paragraph(f"→ {words}", page.width, _INDENT, "green")


def _other_lines(entry: Forecast, page: Page) -> Iterator[Text]:
    """Yield the variations that do not recompile, and those that failed."""
    recompiled = recompiling(entry)
    same = [
        axis_title(axis)
        for axis in entry.axes
        if axis.kind != "asked" and not axis.error and axis not in recompiled
    ]
    if same:
        yield from paragraph(f"no other compilation for {'; '.join(same)}", page.width, "  ", "dim")
    for axis in entry.axes:
        if axis.error:
            yield from paragraph(f"{axis.name}: not known: {axis.error}", page.width, "  ", "yellow")
    if not entry.is_complete:
        yield Text("  not everything was tried: the time limit was reached", "yellow")
