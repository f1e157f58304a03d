"""Location and text of spans, for everything that shows a report.

Invariant: spans hold UTF-8 columns; shown text has character columns, and paths relative to the current
folder or, for an installed package, to where packages are installed. A line number comes without its file
only if it belongs to the file of the target. A file that is missing or shorter than the span gives empty
text, never an error.
"""

import linecache
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path, PurePath

from aotlens.model.source import Site, Span


def source_line(file: str, line: int) -> str:
    """Return one line of a file without its newline; empty when it cannot be read."""
    return _line(_lines(file), line)


def text_of(span: Span) -> str:
    """Return the source text of a span, stripped; up to the line's end when it is empty or covers several."""
    return _text(span, _lines(span.file))


def site_at(span: Span) -> Site:
    """Return the site of a user's expression without an operator."""
    return Site(span, text_of(span), None)


def texts() -> Callable[[Span], str]:
    """Return a cached `text_of` for the thousands of rows of one answer, which have few spans in fewer files.

    Each file is read once, even if it is missing.
    """
    lines = cache(_lines)
    return cache(lambda span: _text(span, lines(span.file)))


def _lines(file: str) -> Sequence[str]:
    """Return the lines of a file on disk."""
    linecache.checkcache(file)
    return linecache.getlines(file)


def _line(lines: Sequence[str], line: int) -> str:
    return lines[line - 1].rstrip("\r\n") if 1 <= line <= len(lines) else ""


def _text(span: Span, lines: Sequence[str]) -> str:
    line = _line(lines, span.line).encode()
    end = span.end_col if span.end_line == span.line and span.end_col > span.col else len(line)
    return line[span.col : end].decode(errors="replace").strip()


def quoted(span: Span) -> str:
    """Return the source text of a span for use within a sentence, also where it cannot be read."""
    text = text_of(span)
    return f"`{text}`" if text else "this expression"


def column(span: Span) -> int:
    """Return the span's first character, counted from 1."""
    return len(source_line(span.file, span.line).encode()[: span.col].decode(errors="replace")) + 1


def end_column(span: Span) -> int:
    """Return the character after the span's last, counted from 1."""
    line = source_line(span.file, span.end_line)
    return len(line.encode()[: span.end_col].decode(errors="replace")) + 1 if line else span.end_col + 1


_PACKAGES = frozenset({"site-packages", "dist-packages"})
_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/", "/torch/", "/lib/python")
_MOST_PARTS = 3
"""`timm/models/vit.py` is shown whole; of a longer path the package and the file's name."""


@lru_cache(maxsize=4096)
def file_key(file: str) -> str:
    """One spelling per file, so that two ways to write a path meet."""
    return os.path.abspath(file)


def is_users_own(file: str) -> bool:
    """Return True if the file is the user's own, neither an installed package's nor Python's."""
    return _packaged(file) is None


def is_library_path(file: str) -> bool:
    """Return True for a path of Python's own code or of a package, on this machine or another."""
    return any(folder in file for folder in _LIBRARY_FOLDERS)


def own_first(span: Span | None) -> bool:
    """Return the first part of a sort key: spans in the user's own files come before those in packages."""
    return span is not None and not is_users_own(span.file)


def shown_path(file: str) -> str:
    """Return the path for display.

    It is relative to the current folder when it is inside; a file of an installed package is shown as
    `transformers/…/modeling_llama.py`.
    """
    packaged = _packaged(file)
    if packaged is None:
        return relative_path(file)
    return "/".join(packaged if len(packaged) <= _MOST_PARTS else (packaged[0], "…", packaged[-1]))


def file_name(file: str) -> str:
    """Return the name of a file of the user's own; `transformers/…/modeling_llama.py` for one of a
    package."""
    return os.path.basename(file) if is_users_own(file) else shown_path(file)


@lru_cache(maxsize=4096)
def _packaged(file: str) -> tuple[str, ...] | None:
    """Return the parts of the path below the folder of installed packages, or of Python's own modules; None
    for a file of the user's own."""
    parts = PurePath(file).parts
    indices = range(len(parts) - 1, 0, -1)
    packages = next((index for index in indices if parts[index] in _PACKAGES), None)
    if packages is not None:
        return parts[packages + 1 :]
    standard = next((index for index in indices if _is_standard(parts[index - 1], parts[index])), None)
    return None if standard is None else parts[standard:]


def _is_standard(folder: str, name: str) -> bool:
    """Return True for the folder of Python's own modules, `lib/python3.11`."""
    return folder == "lib" and name.startswith("python3.")


def relative_path(file: str) -> str:
    """Return the path for programs: relative to the current folder when it is inside."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):  # outside of it, or the current folder was deleted
        return os.fspath(file)


def line_of(span: Span | None, home: str | None = None) -> str:
    """Return `41` in the file `home`, which is the target's; `blocks.py:41` elsewhere; empty for None."""
    if span is None:
        return ""
    if home is not None and file_key(span.file) == file_key(home):
        return str(span.line)
    return f"{file_name(span.file)}:{span.line}"


def line_text(span: Span | None, home: str | None = None) -> str:
    """`line 41` or `blocks.py:41`, for use inside a sentence."""
    text = line_of(span, home)
    return f"line {text}" if text.isdigit() else text


def lines_text(spans: Iterable[Span], home: str | None, most: int = 6) -> str:
    """`line 12, 15, blocks.py:41`: the lines of `home` first, each once."""
    ordered = sorted(spans, key=lambda span: (line_text(span, home)[:5] != "line ", span.file, span.line))
    lines = list(dict.fromkeys(line_of(span, home) for span in ordered))
    text = ", ".join(lines[:most]) + (", …" if len(lines) > most else "")
    return f"line {text}" if lines and lines[0].isdigit() else text


def location(span: Span) -> str:
    """`model.py:41:9`, which terminals and editors open at the click."""
    shown = column(span) if source_line(span.file, span.line) else span.col + 1
    return f"{shown_path(span.file)}:{span.line}:{shown}"
