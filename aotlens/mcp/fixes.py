"""`apply-fix`: show an edit of a report as a diff, and write it on request.

Invariant: a file is written only with the token of a diff that was shown, only below the server's root, and
only if it is unchanged since the report was made and the diff was shown.
"""

import ast
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from aotlens.errors import UserError
from aotlens.mcp.answers import ApplyFixAnswer
from aotlens.mcp.overview import numbered_fixes
from aotlens.mcp.reports import ReportStore, StoredReport
from aotlens.mcp.requests import ApplyFixRequest
from aotlens.model.edits import edited, unified_diff
from aotlens.model.report import Fix
from aotlens.model.spans import is_users_own, shown_path

__all__ = ["apply_fix"]


@dataclass(frozen=True, slots=True)
class _Change:
    """One file before and after."""

    file: str
    before: str
    after: str


def apply_fix(reports: ReportStore, request: ApplyFixRequest) -> ApplyFixAnswer:
    """Show or write a fix.  Raises UserError for an unknown fix, a changed file, and a write without a shown
    diff.
    """
    stored = reports.get(request.report)
    fix = _fix(stored, request.fix)
    files = dict.fromkeys(edit.span.file for edit in fix.edits)
    changes = [_change(reports, stored, fix, file) for file in files]
    token = _token(changes)
    if request.write:
        _check_token(request.token, token)
        for change in changes:
            Path(change.file).write_bytes(change.after.encode())
    diff = "".join(unified_diff(shown_path(each.file), each.before, each.after) for each in changes)
    return ApplyFixAnswer(fix.title, diff, tuple(files), request.write, token)


def _fix(stored: StoredReport, number: int) -> Fix:
    fixes = {entry.fix: fix for entry, fix in numbered_fixes(stored.report)}
    if number not in fixes:
        offered = f"1 to {len(fixes)}" if fixes else "none"
        raise UserError(f"no fix {number} in {stored.name}; it has {offered}")
    return fixes[number]


def _change(reports: ReportStore, stored: StoredReport, fix: Fix, file: str) -> _Change:
    reports.root.inside(file)
    if not is_users_own(file):
        raise UserError(f"{file} belongs to an installed package, which is not edited")
    try:
        if os.stat(file).st_mtime > stored.started:
            raise UserError(
                f"{file} was changed after {stored.name} was made, so nothing is written; retrace and"
                " take the fix of the new report"
            )
        before = Path(file).read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    after = edited(before, [edit for edit in fix.edits if edit.span.file == file])
    try:
        ast.parse(after)
    except SyntaxError as error:
        raise UserError(f"the edited {file} does not parse: {error}; edit it by hand") from error
    return _Change(file, before, after)


def _token(changes: list[_Change]) -> str:
    texts = (text for change in changes for text in (change.file, change.before, change.after))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _check_token(token: str | None, expected: str) -> None:
    if token is None:
        raise UserError(
            "`write` needs the token of a diff: call `apply-fix` without `write`, read the diff, and pass the"
            " `token` of that answer"
        )
    if token != expected:
        raise UserError(
            "the token is of another diff; call `apply-fix` without `write`, and read the new one"
        )
