"""A place in the user's source, with its text."""

import linecache
from typing import Any

from aotlens.report.records import Site, Span


def source_of(span: Span) -> str:
    """The text of a span; the first line of one that runs over several."""
    line = linecache.getline(span.file, span.line).rstrip("\n").encode()
    end = span.end_col if span.end_line == span.line and span.end_col > span.col else len(line)
    return line[span.col : end].decode(errors="replace").strip()


def site_of(origin: Any) -> Site | None:
    """Where an `aotlens.ir.origin.Origin` happened; None when the user has no line for it."""
    span = origin.place.innermost
    return None if span is None else Site(span, source_of(span), origin.op or None)
