"""Diagnostics as a list that fits: alike ones once, the worst and the user's own first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from aotlens.report.excerpt import SEVERITY_STYLES, diagnostic_lines
from aotlens.report.layout import Page, paragraph
from aotlens.report.places import own_first
from aotlens.report.records import Diagnostic
from aotlens.report.summary import counted

__all__ = ["diagnostic_list"]

_FEW = 5
_SEVERITIES = tuple(SEVERITY_STYLES)


def diagnostic_list(diagnostics: Iterable[Diagnostic], page: Page) -> Iterator[Text]:
    """The worst first; findings of one kind at one expression, as of equal layers, are shown once."""
    groups: dict[object, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        key = diagnostic.span if diagnostic.span is not None else diagnostic.message
        groups.setdefault((diagnostic.code, key), []).append(diagnostic)
    ordered = sorted(groups.values(), key=_order)
    few = page.most(0, _FEW)
    for position, group in enumerate(ordered[:few]):
        if position:
            yield Text()
        for line in diagnostic_lines(group[0], page.width):
            line.truncate(page.width, overflow="ellipsis")
            yield line
        if len(group) > 1:
            yield from paragraph(f"= and {len(group) - 1} more like it here", page.width, "    ", "dim")
    yield from _rest(ordered[few:], page)


def _order(group: Sequence[Diagnostic]) -> tuple[int, bool]:
    return _SEVERITIES.index(group[0].severity), own_first(group[0].span)


def _rest(groups: Sequence[Sequence[Diagnostic]], page: Page) -> Iterator[Text]:
    """The others, counted by code."""
    codes = Counter(diagnostic.code for group in groups for diagnostic in group)
    if codes:
        each = ", ".join(f"{code} ×{count}" if count > 1 else code for code, count in codes.items())
        text = f"and {counted(codes.total(), 'more diagnostic')}: {each} ({page.rest})"
        yield from paragraph(text, page.width, "  ", "dim")
