"""The gutter: what the report says about each source line."""

from collections import defaultdict
from dataclasses import dataclass, replace

from aotlens.report.records import Diagnostic, Report, Severity, Span, Target
from tui.view.places import file_key

SEVERITY_LETTERS: dict[Severity, str] = {"error": "E", "warning": "W", "information": "i", "hint": "h"}
SEVERITY_ORDER: tuple[Severity, ...] = ("error", "warning", "information", "hint")


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known about one line."""

    saved_bytes: int = 0
    mutates: bool = False
    aliases: bool = False
    severity: Severity | None = None


Marks = dict[tuple[str, int], Mark]
"""By file key and 1-based line."""

NO_MARK = Mark()


def line_marks(report: Report, target: Target | None) -> Marks:
    """Marks of one target and of what the report says as a whole."""
    marks: Marks = defaultdict(Mark)
    if target is not None:
        for saved in target.partition.saved if target.partition else ():
            if saved.span is not None:
                key = line_key(saved.span)
                marks[key] = replace(marks[key], saved_bytes=marks[key].saved_bytes + saved.bytes)
        for site in (
            site for row in target.inputs if row.mutation_type != "not_mutated" for site in row.sites
        ):
            marks[line_key(site.span)] = replace(marks[line_key(site.span)], mutates=True)
        for site in (site for row in target.outputs if row.base is not None for site in row.sites):
            marks[line_key(site.span)] = replace(marks[line_key(site.span)], aliases=True)
    for diagnostic in all_diagnostics(report, target):
        if diagnostic.span is not None:
            key = line_key(diagnostic.span)
            marks[key] = replace(marks[key], severity=worst(marks[key].severity, diagnostic.severity))
    return dict(marks)


def all_diagnostics(report: Report, target: Target | None) -> tuple[Diagnostic, ...]:
    """The target's diagnostics, then those that belong to no target; the worst first, else by line."""
    found = (*(target.diagnostics if target else ()), *report.diagnostics)
    unique = tuple({(item.code, item.message, item.span): item for item in found}.values())
    return tuple(sorted(unique, key=lambda item: (SEVERITY_ORDER.index(item.severity), item.span is None)))


def line_key(span: Span) -> tuple[str, int]:
    return (file_key(span.file), span.line)


def worst(first: Severity | None, second: Severity) -> Severity:
    if first is None:
        return second
    return min(first, second, key=SEVERITY_ORDER.index)
