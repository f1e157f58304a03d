"""Where a span stands and what it says, for everything that shows a report.

Invariant: spans hold UTF-8 columns; what a person reads holds character columns, and paths relative to the
folder they stand in.  A file that is gone or shorter than the span gives empty text, never an error.
"""

import linecache
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from aotlens.report.records import Site, Span


def source_line(file: str, line: int) -> str:
    """One line of a file without its newline; empty when it cannot be read."""
    return _line(_lines(file), line)


def text_of(span: Span) -> str:
    """The source text of a span, stripped; up to the line's end when it is empty or runs over several."""
    return _text(span, _lines(span.file))


def site_at(span: Span) -> Site:
    """An expression of the user's that is no operator."""
    return Site(span, text_of(span), None)


def texts() -> Callable[[Span], str]:
    """`text_of` for the thousands of rows of one answer, which have few places in fewer files.

    The disk is asked once for each file, also for one that is gone.
    """
    lines = cache(_lines)
    return cache(lambda span: _text(span, lines(span.file)))


def _lines(file: str) -> Sequence[str]:
    """Of a file as it is on the disk."""
    linecache.checkcache(file)
    return linecache.getlines(file)


def _line(lines: Sequence[str], line: int) -> str:
    return lines[line - 1].rstrip("\r\n") if 1 <= line <= len(lines) else ""


def _text(span: Span, lines: Sequence[str]) -> str:
    line = _line(lines, span.line).encode()
    end = span.end_col if span.end_line == span.line and span.end_col > span.col else len(line)
    return line[span.col : end].decode(errors="replace").strip()


def quoted(span: Span) -> str:
    """The same within a sentence."""
    text = text_of(span)
    return f"`{text}`" if text else "this expression"


def column(span: Span) -> int:
    """The span's first character, counted from 1."""
    return len(source_line(span.file, span.line).encode()[: span.col].decode(errors="replace")) + 1


def end_column(span: Span) -> int:
    """The character behind the span's last, counted from 1."""
    line = source_line(span.file, span.end_line)
    return len(line.encode()[: span.end_col].decode(errors="replace")) + 1 if line else span.end_col + 1


def shown_path(file: str) -> str:
    """The path as a person reads it: relative to the current folder when it lies inside."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):  # outside it; or the current folder was deleted
        return os.fspath(file)


def place(span: Span) -> str:
    """`model.py:41:9`, which terminals and editors open at the click."""
    shown = column(span) if source_line(span.file, span.line) else span.col + 1
    return f"{shown_path(span.file)}:{span.line}:{shown}"
