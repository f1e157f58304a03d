"""Code actions that try fixes for graph breaks and recompilations, and that apply those that passed.

Invariant: a fix counts as tested only while every file of its run is unchanged.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lsprotocol import types

from aotlens.model.report import Fix
from aotlens.model.source import Edit
from lsp_server.translate.actions import workspace_edit
from lsp_server.translate.diagnostics import diagnostic, uri_of
from lsp_server.translate.lenses import TRY_FIXES
from lsp_server.translate.ranges import overlaps
from lsp_server.views import HeldTrace, Shown, Views

CODES = frozenset({"AL406", "AL407", "AL408", "AL409"})
"""Findings that `aotlens why --try-fixes` may have an edit for."""
TITLE = "aotlens: try fixes (runs the script)"


def try_actions(views: Views, path: str, wanted: types.Range) -> Iterator[types.CodeAction]:
    """Yield the command that tries fixes, once for each script that reports a finding in the range."""
    scripts = set()
    for shown, finding in views.findings(path):
        script = shown.trace.key[0]
        tested = views.tested.get(script)
        is_script = script.endswith(".py")  # a log has the name of its pyproject.toml
        is_done = tested is not None and tested.is_fresh
        if finding.code not in CODES or script in scripts or not is_script or is_done:
            continue
        reported = diagnostic(views, shown, finding)
        if reported is None or not overlaps(reported.range, wanted):
            continue
        scripts.add(script)
        command = types.Command(title=TITLE, command=TRY_FIXES, arguments=[uri_of(views, script)])
        yield types.CodeAction(
            title=TITLE, kind=types.CodeActionKind.QuickFix, diagnostics=[reported], command=command
        )


def tested_actions(views: Views, path: str, wanted: types.Range) -> list[types.CodeAction]:
    """Return the fixes that passed for findings in the range; none once a file of the run was edited."""
    actions: dict[str, types.CodeAction] = {}
    for held in views.tested.values():
        view = held.views.get(path)
        if view is None or not held.is_fresh:
            continue
        shown = Shown(held, view, frozenset())
        for _, finding in view.index.diagnostics:
            reported = diagnostic(views, shown, finding)
            if reported is None or not finding.fixes or not overlaps(reported.range, wanted):
                continue
            for fix in (*finding.fixes, *_all_together(held)):
                title = f"tested: {fix.title}"
                edit = workspace_edit(views, shown, fix)
                if edit is not None:
                    actions.setdefault(
                        title,
                        types.CodeAction(
                            title=title,
                            kind=types.CodeActionKind.QuickFix,
                            diagnostics=[reported],
                            is_preferred=True if not actions and views.client.action_preferred else None,
                            edit=edit,
                        ),
                    )
    return list(actions.values())


def _all_together(held: HeldTrace) -> tuple[Fix, ...]:
    """Return all written fixes of a run as one, as they were tested; empty for one, or if they overlap."""
    dynamo = held.report.dynamo
    fixes = [entry.fix for entry in dynamo.fixes if entry.is_written] if dynamo is not None else []
    edits = tuple(dict.fromkeys(edit for fix in fixes for edit in fix.edits))
    if len(fixes) < 2 or overlapping(edits):
        return ()
    return (Fix(f"apply all {len(fixes)} fixes", edits),)


def overlapping(edits: Sequence[Edit]) -> bool:
    """Return True if two edits overlap, or if the result of an insertion depends on their order."""
    spans = sorted((edit.span for edit in edits), key=lambda span: (span.file, span.line, span.col))
    return any(
        first.file == second.file
        and (
            (second.line, second.col) < (first.end_line, first.end_col)
            or (first.line, first.col) == (second.line, second.col)
        )
        for first, second in pairwise(spans)
    )
