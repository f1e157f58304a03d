"""Findings and failures as protocol diagnostics."""

from pathlib import Path

from lsprotocol import types

from aotlens.diagnostics.failures import FAILURE_CODES, from_failure
from aotlens.model.report import Diagnostic
from lsp_server.text.document import Document
from lsp_server.text.positions import convert, width
from lsp_server.text.targets import BadExample
from lsp_server.translate.ranges import span_range
from lsp_server.views import FailedTrace, Shown, Views

SOURCE = "aotlens"

SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "information": types.DiagnosticSeverity.Information,
    "hint": types.DiagnosticSeverity.Hint,
}

BAD_EXAMPLE = FAILURE_CODES["bad-example"]

TAGS = {"AL304": (types.DiagnosticTag.Unnecessary,)}
"""Findings about code that could be deleted without changing any result."""


def diagnostics(views: Views, path: str) -> list[types.Diagnostic]:
    """Return every finding of a file whose lines are as they were traced."""
    document = views.documents.get(path)
    translated = [diagnostic(views, shown, finding) for shown, finding in views.findings(path)]
    failed = [failure for failure in views.failures.values() if failure.file == path]
    translated += [failure_diagnostic(views, failure, document) for failure in failed]
    return [item for item in translated if item is not None]


def diagnostic(views: Views, shown: Shown, finding: Diagnostic) -> types.Diagnostic | None:
    """Return a finding at its current range; None once its lines were edited."""
    text_range = span_range(shown.view, finding.span) if finding.span else None
    if text_range is None:
        return None
    return types.Diagnostic(
        range=text_range,
        severity=SEVERITIES[finding.severity],
        code=finding.code,
        code_description=_rule_page(views, finding.code),
        source=SOURCE,
        message=finding.message,
        tags=[tag for tag in TAGS.get(finding.code, ()) if tag in views.client.diagnostic_tags] or None,
        related_information=_related(views, shown, finding) or None,
    )


def _rule_page(views: Views, code: str) -> types.CodeDescription | None:
    address = views.rule_address(code) if views.client.diagnostic_links else None
    return types.CodeDescription(href=address) if address else None


def failure_diagnostic(
    views: Views, failed: FailedTrace, document: Document | None
) -> types.Diagnostic | None:
    """Return a failed trace, at the line that caused it; None once that line was edited."""
    line = failed.line()
    if line is None:
        return None
    rule = from_failure(failed.failure).code
    text = document.line(line) if document else ""
    start = len(text) - len(text.lstrip())
    end = types.Position(line, width(text, views.encoding))
    return types.Diagnostic(
        range=types.Range(types.Position(line, min(start, end.character)), end),
        severity=types.DiagnosticSeverity.Error,
        code=rule,
        code_description=_rule_page(views, rule),
        source=SOURCE,
        message=failed.failure.message,
    )


def bad_example(views: Views, bad: BadExample, document: Document) -> types.Diagnostic:
    """Return an invalid example comment of the current text."""
    span = bad.span

    def position(line: int, col: int) -> types.Position:
        return types.Position(line - 1, convert(document.line(line - 1), col, "utf-8", views.encoding))

    return types.Diagnostic(
        range=types.Range(position(span.line, span.col), position(span.end_line, span.end_col)),
        severity=types.DiagnosticSeverity.Error,
        code=BAD_EXAMPLE,
        code_description=_rule_page(views, BAD_EXAMPLE),
        source=SOURCE,
        message=bad.message,
    )


def _related(views: Views, shown: Shown, finding: Diagnostic) -> list[types.DiagnosticRelatedInformation]:
    information = []
    for related in finding.related if views.client.diagnostic_related else ():
        view = shown.view_of(related.span)
        text_range = span_range(view, related.span) if view else None
        if view is not None and text_range is not None:
            location = types.Location(uri=uri_of(views, view.index.file), range=text_range)
            information.append(types.DiagnosticRelatedInformation(location=location, message=related.message))
    return information


def uri_of(views: Views, path: str) -> str:
    """Return the client's spelling of the address where the file is open."""
    document = views.documents.get(path)
    return document.uri if document else Path(path).as_uri()
