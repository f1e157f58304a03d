"""The gutter: the report's marks for each source line."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotlens.model.spans import file_key, own_first
from aotlens.view.quantities import counted, human_bytes

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Diagnostic, Report, Severity, Span, Target

SEVERITY_LETTERS: dict[Severity, str] = {"error": "E", "warning": "W", "information": "i", "hint": "h"}
SEVERITY_ORDER: tuple[Severity, ...] = ("error", "warning", "information", "hint")


@dataclass(frozen=True, slots=True)
class Mark:
    """The facts about one line."""

    saved_bytes: int = 0
    mutates: bool = False
    aliases: bool = False
    severity: Severity | None = None
    kernels: int = 0
    """Launches that compute a part of the line, in all phases."""
    findings: tuple[str, ...] = ()
    """The codes of its diagnostics."""


Marks = dict[tuple[str, int], Mark]
"""By file key and 1-based line."""

NO_MARK = Mark()


def line_marks(report: Report, target: Target | None) -> Marks:
    """Return the marks of one target and of the report's own diagnostics."""
    marks: Marks = defaultdict(Mark)
    if target is not None:
        for key, size_bytes in saved_bytes(target).items():
            marks[key] = replace(marks[key], saved_bytes=size_bytes)
        for site in (
            site for row in target.inputs if row.mutation_type != "not_mutated" for site in row.sites
        ):
            marks[line_key(site.span)] = replace(marks[line_key(site.span)], mutates=True)
        for site in (site for row in target.outputs if row.base is not None for site in row.sites):
            marks[line_key(site.span)] = replace(marks[line_key(site.span)], aliases=True)
        for key, number in launches(target).items():
            marks[key] = replace(marks[key], kernels=number)
    for diagnostic in all_diagnostics(report, target):
        if diagnostic.span is not None:
            key = line_key(diagnostic.span)
            level, codes = worst(marks[key].severity, diagnostic.severity), marks[key].findings
            codes = tuple(dict.fromkeys((*codes, diagnostic.code)))
            marks[key] = replace(marks[key], severity=level, findings=codes)
    return dict(marks)


def saved_bytes(target: Target) -> Counter[tuple[str, int]]:
    """Return how many bytes each line saves for the backward."""
    totals: Counter[tuple[str, int]] = Counter()
    for saved in target.partition.saved if target.partition else ():
        if saved.span is not None:
            totals[line_key(saved.span)] += saved.bytes
    return totals


def launches(target: Target) -> Counter[tuple[str, int]]:
    """Return how many kernels compute a part of each line: those of the GPU if it was requested."""
    from aotlens.view.kernels import gpu_kernels  # with the kernels' records

    kernels = gpu_kernels(target.kernels) or target.kernels
    return Counter(key for kernel in kernels for key in {line_key(span) for span in kernel.spans})


def mark_text(mark: Mark) -> str:
    """Return a line's marks in words: `saves 3.1 MiB, 4 kernels, mutates, AL301`."""
    parts = [f"saves {human_bytes(mark.saved_bytes)}"] if mark.saved_bytes else []
    parts += [counted(mark.kernels, "kernel")] if mark.kernels else []
    parts += ["mutates"] if mark.mutates else []
    parts += ["creates an alias"] if mark.aliases else []
    return ", ".join((*parts, *mark.findings))


def all_diagnostics(report: Report, target: Target | None) -> tuple[Diagnostic, ...]:
    """Return the target's diagnostics, then those without a target; errors first, then by line.

    Among equally severe ones those in the user's own files come first.
    """
    diagnostics = (*(target.diagnostics if target else ()), *report.diagnostics)
    unique = tuple({(item.code, item.message, item.span): item for item in diagnostics}.values())
    return tuple(sorted(unique, key=_worst_first))


def _worst_first(item: Diagnostic) -> tuple[int, bool, bool]:
    return SEVERITY_ORDER.index(item.severity), item.span is None, own_first(item.span)


def line_key(span: Span) -> tuple[str, int]:
    return (file_key(span.file), span.line)


def worst(first: Severity | None, second: Severity) -> Severity:
    if first is None:
        return second
    return min(first, second, key=SEVERITY_ORDER.index)
