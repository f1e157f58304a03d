"""Findings as SARIF 2.1.0, the exchange format of static analysers (OASIS, errata 01).

Invariant: columns count Unicode code points from 1, as `columnKind` says; paths lie below `%SRCROOT%`, which
is the folder that the command ran in, where they can.
"""

import hashlib
import json
from pathlib import Path
from urllib.parse import quote

from aotlens._version import __version__
from aotlens.diagnostics.checked import Checked, Finding
from aotlens.diagnostics.rules import RULES, Rule, page
from aotlens.model.report import Diagnostic, Fix, Severity, Span
from aotlens.model.spans import column, end_column, relative_path, text_of

__all__ = ["SCHEMA", "render"]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "information": "note", "hint": "note"}
_INDEX = {rule.code: index for index, rule in enumerate(RULES)}

Json = dict[str, object]


def render(checked: Checked) -> str:
    driver = {
        "name": "aotlens",
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in RULES],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"%SRCROOT%": {"uri": f"{Path.cwd().as_uri()}/"}},
        "invocations": [
            {"executionSuccessful": checked.exit_code < 2, "exitCode": checked.exit_code},
        ],
        "results": [
            *(_result(finding, hidden=False) for finding in checked.findings),
            *(_result(finding, hidden=True) for finding in checked.hidden),
        ],
    }
    return (
        json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)
        + "\n"
    )


def _rule(rule: Rule) -> Json:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.title.replace("'", "").split()),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.meaning},
        "help": {"text": f"{rule.cost} {rule.advice}", "markdown": page(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [rule.family]},
    }


def _result(finding: Finding, hidden: bool) -> Json:
    diagnostic = finding.diagnostic
    result: Json = {
        "ruleId": diagnostic.code,
        "ruleIndex": _INDEX[diagnostic.code],
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": diagnostic.message},
        "locations": [_location(finding.file, diagnostic.span, finding.qualname)],
        "partialFingerprints": {"aotlens/v1": _fingerprint(finding)},
    }
    if diagnostic.related:
        result["relatedLocations"] = [
            {"id": index, **_location(row.span.file, row.span), "message": {"text": row.message}}
            for index, row in enumerate(diagnostic.related)
        ]
    if diagnostic.fixes:
        result["fixes"] = [_fix(fix) for fix in diagnostic.fixes]
    if hidden:
        result["suppressions"] = [{"kind": "inSource"}]
    return result


def _location(file: str, span: Span | None, qualname: str | None = None) -> Json:
    physical: Json = {"artifactLocation": _artifact(file)}
    if span is not None:
        physical["region"] = _region(span)
    location: Json = {"physicalLocation": physical}
    if qualname is not None:
        location["logicalLocations"] = [{"fullyQualifiedName": qualname, "kind": "function"}]
    return location


def _artifact(file: str) -> Json:
    shown = Path(relative_path(file))
    if shown.is_absolute():
        return {"uri": shown.as_uri()}
    return {"uri": quote(shown.as_posix()), "uriBaseId": "%SRCROOT%"}


def _region(span: Span) -> Json:
    return {
        "startLine": span.line,
        "startColumn": column(span),
        "endLine": span.end_line,
        "endColumn": end_column(span),
    }


def _fix(fix: Fix) -> Json:
    files = dict.fromkeys(edit.span.file for edit in fix.edits)
    changes = [
        {
            "artifactLocation": _artifact(file),
            "replacements": [
                {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}
                for edit in fix.edits
                if edit.span.file == file
            ],
        }
        for file in files
    ]
    return {"description": {"text": fix.title}, "artifactChanges": changes}


def _fingerprint(finding: Finding) -> str:
    """Return a hash that does not change while the expression does not, wherever in its file it moves."""
    diagnostic: Diagnostic = finding.diagnostic
    text = text_of(diagnostic.span) if diagnostic.span is not None else ""
    parts = (diagnostic.code, Path(relative_path(finding.file)).as_posix(), finding.qualname or "", text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
