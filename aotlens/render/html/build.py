"""Puts a report, its source files, and the page's own files into one HTML text."""

import json
import os
from collections.abc import Iterator
from html import escape
from importlib.resources import files

from aotlens._version import __version__
from aotlens.model.report import Dynamo, Report, Target
from aotlens.model.spans import file_key
from aotlens.render.html.encode import Encoder, Json
from aotlens.render.html.fit_tab import fit_target, snapshot_target
from aotlens.render.html.tabs import dynamo_tabs, tabs
from aotlens.view.quantities import human_bytes, target_summary
from aotlens.view.tabs.source.files import SourceStore
from aotlens.view.tabs.source.marks import SEVERITY_LETTERS, line_marks
from aotlens.view.tabs.targets import target_address, target_title
from aotlens.view.why import dynamo_summary

__all__ = ["filled_page", "html_page"]

SCRIPTS = (
    "list.js",
    "source.js",
    "details.js",
    "layout.js",
    "drawing.js",
    "chart.js",
    "address.js",
    "panel.js",
    "page.js",
)
"""In the order in which they need each other."""


def html_page(report: Report, name: str) -> str:
    """Return the whole page; source files are read from the report's paths."""
    encoder = Encoder(SourceStore((os.getcwd(),)))
    targets = [_target(report, index, encoder) for index in range(len(report.targets))]
    if not targets and report.dynamo is not None:
        targets = [_dynamo(report.dynamo, encoder)]
    if not targets and report.fit is not None:
        targets = [fit_target(report, report.fit, encoder)]
    elif not targets and report.memory_snapshots:
        targets = [snapshot_target(report, encoder)]
    data: dict[str, object] = {
        "title": name,
        "made_by": _made_by(report),
        "targets": targets,
        **encoder.tables(),
    }
    return filled_page(name, data)


def filled_page(title: str, data: dict[str, object]) -> str:
    """Return the page with its scripts, style and data."""
    page = _file("page.html")
    for mark, text in (
        ("{{title}}", escape(f"{title}: aotlens")),
        ("{{style}}", _file("page.css")),
        ("{{scripts}}", "\n".join(_file(script) for script in SCRIPTS)),
        ("{{data}}", _script_json(data)),
    ):
        page = page.replace(mark, text)
    return page


def _script_json(data: object) -> str:
    """Return JSON that is safe inside a script element: no `<` of the user's ends it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _file(name: str) -> str:
    return files("aotlens.render.html").joinpath(name).read_text(encoding="utf-8")


def _made_by(report: Report) -> str:
    torch = f" · torch {report.torch}" if report.torch else ""
    return f"aotlens {__version__}{torch} · Python {report.python}"


def _target(report: Report, index: int, encoder: Encoder) -> Json:
    target = report.targets[index]
    return {
        "title": target_title(report, index),
        "address": target_address(report, index),
        "summary": target_summary(target),
        "span": encoder.span(target.span) if target.span is not None else -1,
        "tabs": tabs(report, target, encoder),
        "marks": [list(mark) for mark in _marks(report, target, encoder)],
    }


def _dynamo(dynamo: Dynamo, encoder: Encoder) -> Json:
    """Return Dynamo's facts in the form of a target, for a report without targets."""
    span = next((function.span for function in dynamo.functions), None)
    return {
        "title": "Dynamo",
        "address": "Dynamo",
        "summary": dynamo_summary(dynamo),
        "span": encoder.span(span) if span is not None else -1,
        "tabs": dynamo_tabs(dynamo, encoder),
        "marks": [],
    }


def _marks(report: Report, target: Target, encoder: Encoder) -> Iterator[tuple[object, ...]]:
    """Yield file, line, saved bytes, whether it mutates, whether a result is a view, the worst finding."""
    files = {file_key(file): number for file, number in encoder.files.items()}
    for (file, line), mark in line_marks(report, target).items():
        if file in files:
            saved = human_bytes(mark.saved_bytes) if mark.saved_bytes else ""
            worst = SEVERITY_LETTERS[mark.severity] if mark.severity is not None else ""
            yield files[file], line, saved, int(mark.mutates), int(mark.aliases), worst
