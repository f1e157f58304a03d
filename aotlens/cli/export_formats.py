"""Formats that other programs show: a page for a browser, graphs for Model Explorer, a trace for Perfetto."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from aotlens.errors import UserError
from aotlens.model.report import Report

__all__ = ["TRACE_FORMATS", "WHOLE_FORMATS", "check_whole_format", "whole_text"]


@dataclass(frozen=True, slots=True)
class _Format:
    """A format, with the program that opens its files."""

    program: str
    suffix: str
    write: Callable[[Report, str], str]
    """Takes the report and its title, and returns the file's text; loads its writer on use."""


def _html(report: Report, title: str) -> str:
    from aotlens.render.html.build import html_page  # pygments takes 0.1 s

    return html_page(report, title)


def _model_explorer(report: Report, title: str) -> str:
    from aotlens.render.model_explorer import model_explorer_text

    return model_explorer_text(report, title)


def _perfetto(report: Report, title: str) -> str:
    from aotlens.render.perfetto import perfetto_text

    return perfetto_text(report)


WHOLE_FORMATS = {
    "html": _Format("a browser", ".html", _html),
    "model-explorer": _Format("Model Explorer", ".json", _model_explorer),
    "perfetto": _Format("Perfetto", ".json", _perfetto),
}
"""Formats that hold the whole report and are not for reading in a terminal."""

TRACE_FORMATS = ("text", "json", *WHOLE_FORMATS)


def check_whole_format(name: str, output: str | None) -> None:
    """Raise UserError if such a file would be written to a terminal."""
    chosen = WHOLE_FORMATS.get(name)
    if chosen is not None and output is None and sys.stdout.isatty():
        what = "the page" if name == "html" else "the file"
        raise UserError(f"{what} is for {chosen.program}: write it with -o FILE{chosen.suffix}")


def whole_text(report: Report, name: str, title: str) -> str:
    """Return the report in one of `WHOLE_FORMATS`."""
    return WHOLE_FORMATS[name].write(report, title)
