"""Where a span stands and what it says, for everything that shows a report.

Invariant: spans hold UTF-8 columns; what a person reads holds character columns, and paths relative to the
folder they stand in.  A file that is gone or shorter than the span gives empty text, never an error.
"""

import linecache
import os
from pathlib import Path

from aotlens.report.records import Span


def source_line(file: str, line: int) -> str:
    """One line of a file without its newline; empty when it cannot be read."""
    linecache.checkcache(file)
    return linecache.getline(file, line).rstrip("\r\n")


def text_of(span: Span) -> str:
    """The source text of a span, stripped; up to the line's end when it is empty or runs over several."""
    line = source_line(span.file, span.line).encode()
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
