"""Findings as workflow commands, which GitHub shows at the lines of a pull request.

Form: `::warning file=NAME,line=N,endLine=N,col=N,endColumn=N,title=TEXT::MESSAGE`, with `%`, line ends and,
in the properties, `:` and `,` written as `%XX`.
"""

from aotlens.diagnostics.checked import Checked, Finding
from aotlens.diagnostics.rules import rule
from aotlens.model.spans import column, end_column, place, relative_path

__all__ = ["render"]

_LEVELS = {"error": "error", "warning": "warning", "information": "notice", "hint": "notice"}


def render(checked: Checked) -> str:
    return "".join(f"{_command(found)}\n" for found in checked.findings)


def _command(found: Finding) -> str:
    one = found.diagnostic
    properties = {"file": relative_path(found.file)}
    if one.span is not None:
        properties |= {"line": str(one.span.line), "endLine": str(one.span.end_line)}
        if one.span.line == one.span.end_line:  # columns of a range over lines are not shown
            properties |= {"col": str(column(one.span)), "endColumn": str(end_column(one.span))}
    properties["title"] = f"{one.code}: {rule(one.code).title}"
    written = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    notes = [f"{place(row.span)}: {row.message}" for row in one.related]
    message = "\n".join([one.message, *notes, *(f"fix: {fix.title}" for fix in one.fixes)])
    return f"::{_LEVELS[one.severity]} {written}::{_escaped(message, '')}"


def _escaped(text: str, more: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)
