"""Findings as workflow commands, which GitHub shows at the lines of a pull request.

Form: `::warning file=NAME,line=N,endLine=N,col=N,endColumn=N,title=TEXT::MESSAGE`, with `%`, line ends and,
in the properties, `:` and `,` written as `%XX`.
"""

from aotlens.diagnostics.checked import Checked, Finding
from aotlens.diagnostics.rules import rule
from aotlens.model.spans import column, end_column, location, relative_path

__all__ = ["render"]

_LEVELS = {"error": "error", "warning": "warning", "information": "notice", "hint": "notice"}


def render(checked: Checked) -> str:
    return "".join(f"{_command(finding)}\n" for finding in checked.findings)


def _command(finding: Finding) -> str:
    diagnostic = finding.diagnostic
    properties = {"file": relative_path(finding.file)}
    if diagnostic.span is not None:
        properties |= {"line": str(diagnostic.span.line), "endLine": str(diagnostic.span.end_line)}
        if diagnostic.span.line == diagnostic.span.end_line:  # columns of a range over lines are not shown
            properties |= {"col": str(column(diagnostic.span)), "endColumn": str(end_column(diagnostic.span))}
    properties["title"] = f"{diagnostic.code}: {rule(diagnostic.code).title}"
    written = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    notes = [f"{location(row.span)}: {row.message}" for row in diagnostic.related]
    message = "\n".join([diagnostic.message, *notes, *(f"fix: {fix.title}" for fix in diagnostic.fixes)])
    return f"::{_LEVELS[diagnostic.severity]} {written}::{_escaped(message, '')}"


def _escaped(text: str, more: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)
