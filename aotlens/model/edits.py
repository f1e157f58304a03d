"""Edits of a source text."""

import difflib
from collections.abc import Iterable, Iterator

from aotlens.model.source import Edit

__all__ = ["edited", "unified_diff"]


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text after the edits; their columns are UTF-8 bytes, and the last one is applied first."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = b"".join(lines)
    for edit in sorted(edits, key=lambda item: (item.span.line, item.span.col), reverse=True):
        start = starts[min(edit.span.line - 1, len(lines))] + edit.span.col
        end = starts[min(edit.span.end_line - 1, len(lines))] + edit.span.end_col
        data = data[:start] + edit.text.encode() + data[end:]
    return data.decode()


def unified_diff(name: str, before: str, after: str) -> str:
    """Return the diff of a file of that name, in the format of `patch` and git."""
    return "".join(_diff_lines(name, before, after))


def _diff_lines(name: str, before: str, after: str) -> Iterator[str]:
    name = name.lstrip("/")  # as git writes an absolute path
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
