"""Diagnostics: their messages, their lines, and the edits of their fixes."""

import difflib
from collections.abc import Iterator

from aotlens.model.edits import edited
from aotlens.model.report import Diagnostic, Fix, Report, Target
from aotlens.model.spans import line_of, line_text
from aotlens.view.tabs.source.marks import SEVERITY_LETTERS, SEVERITY_ORDER, all_diagnostics
from aotlens.view.tabs.tables.rows import Cells, Column, LazyRows, Line, Link, Listing, Part

DIAGNOSTIC_COLUMNS = (
    Column("", widest=1, narrowest=1),
    Column("code", widest=6, narrowest=5),
    Column("line", widest=40, narrowest=4, align="right"),
    Column("diagnostic", widest=60, narrowest=20, grows=True),
    Column("fix", widest=3, narrowest=3, align="right", drop=1),
)


def severity_part(diagnostic: Diagnostic) -> Part:
    return Part(
        SEVERITY_LETTERS[diagnostic.severity],
        diagnostic.severity,
        SEVERITY_ORDER.index(diagnostic.severity),
    )


def diagnostic_key(diagnostic: Diagnostic) -> str:
    line, col = (diagnostic.span.line, diagnostic.span.col) if diagnostic.span else (0, 0)
    return f"diagnostic:{diagnostic.code}:{line}:{col}:{diagnostic.message}"


def diagnostic_listing(report: Report, target: Target | None) -> Listing:
    """Return the diagnostics, errors first."""
    home = target.file if target else None

    def cells_of(diagnostic: Diagnostic) -> Cells:
        return (
            severity_part(diagnostic),
            Part(diagnostic.code, diagnostic.severity),
            Part(line_of(diagnostic.span, home), "place"),
            diagnostic.message,
            str(len(diagnostic.fixes)) if diagnostic.fixes else "",
        )

    def link(diagnostic: Diagnostic) -> Link:
        related = tuple(item.span for item in diagnostic.related)
        return Link((diagnostic.span,) if diagnostic.span else (), related)

    def text(diagnostic: Diagnostic) -> str:
        return f"{diagnostic.code} {diagnostic.severity} {diagnostic.message}"

    rows = LazyRows(all_diagnostics(report, target), diagnostic_key, cells_of, text, link)
    return Listing(DIAGNOSTIC_COLUMNS, rows, "no diagnostics")


def diagnostic_details(
    diagnostic: Diagnostic, target: Target | None, sources: dict[str, str], *, has_keys: bool = True
) -> Iterator[Line]:
    """Yield the message, the related lines, and each fix as a difference.

    `sources` are the texts of the edited files; `has_keys` is False where the keys of the terminal app do
    nothing.
    """
    home = target.file if target else None
    yield Line((Part(f"{diagnostic.code}  ", diagnostic.severity), Part(diagnostic.severity, "dim")))
    yield Line((Part(diagnostic.message),), Link((diagnostic.span,) if diagnostic.span else ()), wrap=True)
    for item in diagnostic.related:
        parts = (Part(f"{line_text(item.span, home)}  ", "place"), Part(item.message))
        yield Line(parts, Link((item.span,)), wrap=True)
    for fix in diagnostic.fixes:
        yield Line()
        applies = "  a applies it" if has_keys else "  a in `aotlens tui` applies it"
        yield Line((Part("fix  ", "accent"), Part(fix.title, "title"), Part(applies, "dim")))
        yield from difference(fix, sources)
    if not diagnostic.fixes:
        yield Line((Part("no automatic fix", "dim"),))
    yield Line((Part(f"aotlens rule {diagnostic.code}", "code"), Part("  explains this diagnostic", "dim")))


def difference(fix: Fix, sources: dict[str, str]) -> Iterator[Line]:
    """Yield the fix as removed and added lines."""
    for file in dict.fromkeys(edit.span.file for edit in fix.edits):
        before = sources.get(file)
        if before is None:
            yield Line((Part(f"  {file} is not on this machine", "dim"),))
            continue
        edits = tuple(edit for edit in fix.edits if edit.span.file == file)
        after = edited(before, edits)
        diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        for line in tuple(diff)[2:]:
            if not line.startswith("@@"):
                yield Line((Part(f"  {line}", "removed" if line.startswith("-") else "added"),))
