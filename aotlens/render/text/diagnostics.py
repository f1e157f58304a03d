"""Diagnostics as text, in the style of a linter: location, code, message, the source line with carets.

The list folds equal ones and shows errors and the user's own lines first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from aotlens.model.report import Diagnostic, Fix, Span
from aotlens.model.spans import location, own_first, source_line, text_of
from aotlens.render.text.layout import Page, paragraph, wrapped
from aotlens.view.quantities import counted, multiplied

__all__ = ["diagnostic_lines", "diagnostic_list"]

SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "information": "bold blue", "hint": "dim"}


def diagnostic_lines(diagnostic: Diagnostic, width: int) -> Iterator[Text]:
    """One finding: `file:line:col: CODE severity: message`, then its source and notes."""
    style = SEVERITY_STYLES[diagnostic.severity]
    head = [(f"{location(diagnostic.span)}: ", "bold")] if diagnostic.span else []
    label = Text.assemble(*head, (diagnostic.code, style), " ", (diagnostic.severity, style), ": ")
    first, *more = wrapped(label.plain + diagnostic.message, width, "    ") or [""]
    # a narrow page may end within the label, which then has no colour
    yield label + Text(first[label.cell_len :]) if first.startswith(label.plain) else Text(first)
    yield from map(Text, more)
    if diagnostic.span:
        yield from excerpt_lines(diagnostic.span, style)
    for related in diagnostic.related:
        shown = text_of(related.span)
        where = f"{location(related.span)}{f': `{shown}`' if shown else ''}"
        yield from paragraph(f"= note: {where}: {related.message}", width, "    ", "dim")
    for fix in diagnostic.fixes:
        yield from paragraph(f"= fix: {_fix(fix)}", width, "    ", "green")


def excerpt_lines(span: Span, style: str = "bold") -> Iterator[Text]:
    """Yield the span's first line, with carets below it; nothing when the file cannot be read."""
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
    """Return the title, with the new text when it is one short line."""
    texts = [edit.text.strip() for edit in fix.edits]
    if len(texts) == 1 and texts[0] and "\n" not in texts[0]:
        return f"{fix.title}: `{texts[0]}`"
    return fix.title


_FEW = 5
_SEVERITIES = tuple(SEVERITY_STYLES)


def diagnostic_list(diagnostics: Iterable[Diagnostic], page: Page) -> Iterator[Text]:
    """Yield, for a short page, the diagnostics, errors first; equal findings at one expression, as of equal
    layers, are shown once."""
    groups: dict[object, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        key = diagnostic.span if diagnostic.span is not None else diagnostic.message
        groups.setdefault((diagnostic.code, key), []).append(diagnostic)
    ordered = sorted(groups.values(), key=_order)
    few = page.few(_FEW)
    for position, group in enumerate(ordered[:few]):
        if position:
            yield Text()
        for line in diagnostic_lines(group[0], page.width):
            line.truncate(page.width, overflow="ellipsis")
            yield line
        if len(group) > 1:
            yield from paragraph(f"= {len(group) - 1} more of this kind here", page.width, "    ", "dim")
    yield from _rest(ordered[few:], page)


def _order(group: Sequence[Diagnostic]) -> tuple[int, bool]:
    return _SEVERITIES.index(group[0].severity), own_first(group[0].span)


def _rest(groups: Sequence[Sequence[Diagnostic]], page: Page) -> Iterator[Text]:
    """Yield the other diagnostics, counted by code."""
    codes = Counter(diagnostic.code for group in groups for diagnostic in group)
    if codes:
        each = ", ".join(f"{code} {multiplied(count)}".rstrip() for code, count in codes.items())
        text = f"and {counted(codes.total(), 'more diagnostic')}: {each} ({page.rest})"
        yield from paragraph(text, page.width, "  ", "dim")
