"""Findings and failures as protocol diagnostics."""

from pathlib import Path

from lsprotocol import types

from aotlens.report.diagnose import FAILURE_CODES, from_failure
from aotlens.report.records import Diagnostic, Span
from lsp_server.document import Document
from lsp_server.positions import Encoding, convert, width
from lsp_server.targets import BadExample
from lsp_server.translate.ranges import span_range
from lsp_server.views import FailedTrace, FileView, Views, real_path

SOURCE = "aotlens"

SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "information": types.DiagnosticSeverity.Information,
    "hint": types.DiagnosticSeverity.Hint,
}


def diagnostics(views: Views, path: str) -> list[types.Diagnostic]:
    """Every finding of a file that stands on lines as they were traced."""
    document = views.documents.get(path)
    found = [diagnostic(views, view, finding) for view, finding in views.findings(path)]
    failed = [one for one in views.failures.values() if one.file == path]
    found += [failure_diagnostic(one, document, views.encoding) for one in failed]
    return [one for one in found if one is not None]


def diagnostic(views: Views, view: FileView, finding: Diagnostic) -> types.Diagnostic | None:
    place = span_range(view, finding.span) if finding.span else None
    if place is None:
        return None
    return types.Diagnostic(
        range=place,
        severity=SEVERITIES[finding.severity],
        code=finding.code,
        code_description=rule_page(finding.code),
        source=SOURCE,
        message=finding.message,
        tags=None,
        related_information=_related(views, view, finding) or None,
    )


def rule_page(rule: str) -> types.CodeDescription | None:
    """The page of a rule, where it is installed beside the package."""
    page = Path(__file__).parents[2] / "docs" / "rules" / f"{rule}.md"
    return types.CodeDescription(href=page.as_uri()) if page.is_file() else None


def failure_diagnostic(
    failed: FailedTrace, document: Document | None, encoding: Encoding
) -> types.Diagnostic | None:
    """A trace that failed, at the line to blame; None once that line was edited."""
    line = failed.line()
    if line is None:
        return None
    rule = from_failure(failed.failure).code
    text = document.line(line) if document else ""
    start = len(text) - len(text.lstrip())
    end = types.Position(line, width(text, encoding))
    return types.Diagnostic(
        range=types.Range(types.Position(line, min(start, end.character)), end),
        severity=types.DiagnosticSeverity.Error,
        code=rule,
        code_description=rule_page(rule),
        source=SOURCE,
        message=failed.failure.message,
    )


def bad_example(bad: BadExample, document: Document, encoding: Encoding) -> types.Diagnostic:
    """An example comment that cannot be read, as the text is now."""
    span, code = bad.span, FAILURE_CODES["bad-example"]

    def place(line: int, col: int) -> types.Position:
        return types.Position(line - 1, convert(document.line(line - 1), col, "utf-8", encoding))

    return types.Diagnostic(
        range=types.Range(place(span.line, span.col), place(span.end_line, span.end_col)),
        severity=types.DiagnosticSeverity.Error,
        code=code,
        code_description=rule_page(code),
        source=SOURCE,
        message=bad.message,
    )


def _related(views: Views, view: FileView, finding: Diagnostic) -> list[types.DiagnosticRelatedInformation]:
    found = []
    for related in finding.related:
        place = span_range(view, related.span) if _same_file(related.span, finding.span) else None
        if place is not None:
            location = types.Location(uri=uri_of(views, view.index.file), range=place)
            found.append(types.DiagnosticRelatedInformation(location=location, message=related.message))
    return found


def _same_file(left: Span, right: Span | None) -> bool:
    return right is not None and real_path(left.file) == real_path(right.file)


def uri_of(views: Views, path: str) -> str:
    """The client's own spelling of the address where the file is open."""
    document = views.documents.get(path)
    return document.uri if document else Path(path).as_uri()
