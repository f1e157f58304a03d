"""Collect the findings of all traces: selected, not hidden by comments, each finding once.

Invariant: findings are in the order of files and lines, so that two runs print the same.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from aotlens.check.settings import SEVERITIES, Settings
from aotlens.check.tracing import Traced
from aotlens.diagnostics.budgets import (
    not_checked,
    over_budget,
    over_dynamo_budget,
    over_step_budget,
)
from aotlens.diagnostics.checked import Checked, CheckedTarget, Finding
from aotlens.diagnostics.failures import FAILURE_FAMILY, from_failure
from aotlens.diagnostics.ignores import Ignore, covers, parse_ignores, unknown_codes, unused
from aotlens.model.report import Diagnostic, Target
from aotlens.model.spans import own_first

__all__ = ["Checked", "CheckedTarget", "Finding", "check_traces"]

FAULT_OF_OURS = "AL911"
"""The code of a failed trace that is a bug of aotlens."""


@dataclass(slots=True)
class _Comment:
    """An ignore comment, and which of its codes have hidden a finding."""

    ignore: Ignore
    used: set[str] = field(default_factory=set)

    def hides(self, diagnostic: Diagnostic) -> bool:
        if not covers(self.ignore, diagnostic):
            return False
        self.used |= {code for code in self.ignore.codes if diagnostic.code.startswith(code)} or {""}
        return True


def check_traces(traced: Sequence[Traced]) -> Checked:
    """Return all findings of the traces and the resulting exit code."""
    comments = _Comments()
    reported: list[Finding] = []
    hidden: list[Finding] = []
    for finding in {
        _identity(finding): finding for file_trace in traced for finding in _of_trace(file_trace)
    }.values():
        (hidden if comments.hide(finding.diagnostic) else reported).append(finding)
    reported += comments.unused(traced)
    ordered = sorted(reported, key=_order)
    return Checked(
        tuple(dict.fromkeys(file_trace.file.path for file_trace in traced)),
        tuple(_targets(traced)),
        tuple(ordered),
        tuple(sorted(hidden, key=_order)),
        max((finding.exit_code for finding in ordered), default=0),
    )


def _of_trace(traced: Traced) -> Iterator[Finding]:
    """Yield the findings of one trace that the settings select."""
    file, settings = traced.file.path, traced.file.settings
    rows: list[tuple[str | None, Diagnostic]] = []
    if traced.report is not None:
        for target in traced.report.targets:
            budget = settings.budget_of(_source_of(target, file), target.qualname)
            rows += [
                (target.qualname, entry) for entry in (*target.diagnostics, *over_budget(target, budget))
            ]
        for function in traced.report.dynamo.functions if traced.report.dynamo is not None else ():
            budget = settings.budget_of(function.span.file, function.qualname)
            rows += [(function.qualname, entry) for entry in over_dynamo_budget(function, budget)]
        rows += [(None, entry) for entry in (*traced.report.diagnostics, *not_checked(traced.report))]
        if traced.report.fit is not None:
            rows += [(None, entry) for entry in over_step_budget(traced.report.fit, settings.budget_of(file))]
    if (
        traced.failure is not None and traced.report is None
    ):  # the failure of a report is among its diagnostics
        rows.append((None, from_failure(traced.failure)))
    for qualname, diagnostic in rows:
        where = diagnostic.span.file if diagnostic.span is not None else file
        if settings.selects(diagnostic.code, where, qualname):
            yield _finding(diagnostic, where, qualname, settings)


def _finding(diagnostic: Diagnostic, file: str, qualname: str | None, settings: Settings) -> Finding:
    if diagnostic.code == FAULT_OF_OURS:
        return Finding(diagnostic, file, qualname, 3)
    if diagnostic.code.startswith(FAILURE_FAMILY):
        return Finding(diagnostic, file, qualname, 2)
    fails = SEVERITIES.index(diagnostic.severity) <= SEVERITIES.index(settings.fail_on)
    return Finding(diagnostic, file, qualname, int(fails))


def _identity(finding: Finding) -> tuple[object, ...]:
    """Return a key that is equal for the same finding in two files or examples."""
    diagnostic, span = finding.diagnostic, finding.diagnostic.span
    position = (os.path.realpath(span.file), span.line, span.col) if span is not None else (finding.file,)
    return diagnostic.code, diagnostic.severity, diagnostic.message, position


def _source_of(target: Target, file: str) -> str:
    """Return the file whose settings hold for a target: for one of a log, its source, not the log."""
    return target.span.file if target.frontend == "trace" and target.span is not None else file


def _targets(traced: Iterable[Traced]) -> Iterator[CheckedTarget]:
    for file_trace in traced:
        for target in file_trace.report.targets if file_trace.report is not None else ():
            file = _source_of(target, file_trace.file.path)
            budget = file_trace.file.settings.budget_of(file, target.qualname)
            yield CheckedTarget(file_trace.file.path, target, budget)


def _order(finding: Finding) -> tuple[object, ...]:
    span = finding.diagnostic.span
    return (
        own_first(span),
        finding.file,
        span.line if span else 0,
        span.col if span else 0,
        finding.diagnostic.code,
    )


class _Comments:
    """The ignore comments of every file with findings."""

    def __init__(self) -> None:
        self._by_file: dict[str, list[_Comment]] = {}

    def hide(self, diagnostic: Diagnostic) -> bool:
        """Return True if a comment hides the finding; each such comment counts as used."""
        if diagnostic.span is None:
            return False
        hiding = [comment for comment in self._in_file(diagnostic.span.file) if comment.hides(diagnostic)]
        return bool(hiding)

    def unused(self, traced: Sequence[Traced]) -> Iterator[Finding]:
        """Yield comments on executed code that hide nothing, except in files that were traced in part."""
        traced_lines = _traced_lines(traced)
        incomplete = {
            file_trace.file.path
            for file_trace in traced
            if file_trace.failure or file_trace.report is None or _has_errors(file_trace)
        }
        for file in {file_trace.file.path: file_trace.file for file_trace in traced}.values():
            for comment in self._in_file(file.path):
                ignore, settings = comment.ignore, file.settings
                diagnostics = list(unknown_codes(ignore))
                ran = any((file.path, line) in traced_lines for line in range(ignore.first, ignore.last + 1))
                if not diagnostics and ran and file.path not in incomplete:
                    diagnostics = list(_unused(comment, settings, file.path))
                for diagnostic in diagnostics:
                    if settings.selects(diagnostic.code, file.path, None):
                        yield _finding(diagnostic, file.path, None, settings)

    def _in_file(self, file: str) -> list[_Comment]:
        key = os.path.realpath(file)
        if key not in self._by_file:
            self._by_file[key] = [_Comment(ignore) for ignore in parse_ignores(_text(key), file)]
        return self._by_file[key]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # generated code, or a deleted file: it has no comments
        return ""


def _has_errors(traced: Traced) -> bool:
    return traced.report is not None and any(
        diagnostic.severity == "error" for diagnostic in traced.report.diagnostics
    )


def _unused(comment: _Comment, settings: Settings, file: str) -> Iterator[Diagnostic]:
    ignore = comment.ignore
    if not ignore.codes:
        if not comment.used:
            yield unused(ignore, ())
        return
    codes = [code for code in ignore.codes if code not in comment.used and settings.selects(code, file, None)]
    if codes:
        yield unused(ignore, codes)


def _traced_lines(traced: Sequence[Traced]) -> set[tuple[str, int]]:
    """Return the lines of checked files that belong to a traced target or that a trace ran.

    Each file has the path that the user passed; a trace may name it by another one, as through a link.
    """
    paths = {os.path.realpath(file_trace.file.path): file_trace.file.path for file_trace in traced}
    names = dict(paths)  # by the trace's path: to resolve a path for every node takes long
    lines = set()
    for file_trace in traced:
        for static in file_trace.file.targets:
            lines |= {
                (file_trace.file.path, line) for line in range(static.body.line, static.body.end_line + 1)
            }
        for target in file_trace.report.targets if file_trace.report is not None else ():
            nodes = (node for stage in target.stages for node in stage.nodes)
            for span in (span for node in nodes for span in node.spans):
                if span.file not in names:
                    names[span.file] = paths.get(os.path.realpath(span.file), span.file)
                lines.add((names[span.file], span.line))
    return lines
