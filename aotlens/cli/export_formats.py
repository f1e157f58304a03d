"""Formats that other programs show: a page for a browser, graphs for Model Explorer, a trace for Perfetto."""

import sys
from dataclasses import dataclass

from aotlens.errors import UserError
from aotlens.model.report import Report

__all__ = ["TRACE_FORMATS", "WHOLE_FORMATS", "check_whole_format", "whole_text"]


@dataclass(frozen=True, slots=True)
class _Reader:
    """The program that opens files of this format."""

    program: str
    suffix: str


WHOLE_FORMATS = {
    "html": _Reader("a browser", ".html"),
    "model-explorer": _Reader("Model Explorer", ".json"),
    "perfetto": _Reader("Perfetto", ".json"),
}
"""Formats that hold the whole report and are not for reading in a terminal."""

TRACE_FORMATS = ("text", "json", *WHOLE_FORMATS)


def check_whole_format(name: str, output: str | None) -> None:
    """Raise UserError if such a file would be written to a terminal."""
    reader = WHOLE_FORMATS.get(name)
    if reader is not None and output is None and sys.stdout.isatty():
        what = "the page" if name == "html" else "the file"
        raise UserError(f"{what} is for {reader.program}: write it with -o FILE{reader.suffix}")


def whole_text(report: Report, name: str, title: str) -> str:
    """Return the report in one of `WHOLE_FORMATS`; each writer is loaded on use."""
    if name == "model-explorer":
        from aotlens.render.model_explorer import model_explorer_text

        return model_explorer_text(report, title)
    if name == "perfetto":
        from aotlens.render.perfetto import perfetto_text

        return perfetto_text(report)
    from aotlens.render.html.build import html_page  # pygments takes 0.1 s

    return html_page(report, title)
