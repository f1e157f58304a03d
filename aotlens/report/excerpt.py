"""Diagnostics as text, in the style of a linter: place, code, message, the source line with carets."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from aotlens.report.layout import paragraph, wrapped
from aotlens.report.places import place, source_line, text_of
from aotlens.report.records import Diagnostic, Fix, Span

SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "information": "bold blue", "hint": "dim"}


def diagnostic_lines(diagnostic: Diagnostic, width: int) -> Iterator[Text]:
    """One finding: `file:line:col: CODE severity: message`, then its source and notes."""
    style = SEVERITY_STYLES[diagnostic.severity]
    head = [(f"{place(diagnostic.span)}: ", "bold")] if diagnostic.span else []
    label = Text.assemble(*head, (diagnostic.code, style), " ", (diagnostic.severity, style), ": ")
    first, *more = wrapped(label.plain + diagnostic.message, width, "    ") or [""]
    yield label + Text(first[label.cell_len :]) if first.startswith(label.plain) else Text(first)
    yield from map(Text, more)
    if diagnostic.span:
        yield from excerpt_lines(diagnostic.span, style)
    for related in diagnostic.related:
        shown = text_of(related.span)
        where = f"{place(related.span)}{f': `{shown}`' if shown else ''}"
        yield from paragraph(f"= note: {where}: {related.message}", width, "    ", "dim")
    for fix in diagnostic.fixes:
        yield from paragraph(f"= fix: {_fix(fix)}", width, "    ", "green")


def excerpt_lines(span: Span, style: str = "bold") -> Iterator[Text]:
    """The span's first line, with carets below it; nothing when the file cannot be read."""
    line = source_line(span.file, span.line)
    if not line:
        return
    raw = line.encode()
    end = span.end_col if span.end_line == span.line and span.end_col > span.col else len(raw)
    before = raw[: span.col].decode(errors="replace").expandtabs(4)
    marked = raw[span.col : end].decode(errors="replace").expandtabs(4)
    number = f"{span.line:>5}"
    yield Text.assemble((f"{number} │ ", "blue"), line.expandtabs(4), no_wrap=True)
    yield Text.assemble(
        (f"{' ' * len(number)} │ ", "blue"),
        " " * cell_len(before),
        ("^" * max(1, cell_len(marked)), style),
        no_wrap=True,
    )


def _fix(fix: Fix) -> str:
    """The title, with the new text when it is one short line."""
    texts = [edit.text.strip() for edit in fix.edits]
    if len(texts) == 1 and texts[0] and "\n" not in texts[0]:
        return f"{fix.title}: `{texts[0]}`"
    return fix.title
