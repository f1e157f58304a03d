"""Code actions that test edits which lower the peak of a training step, and that apply those that passed.

Invariant: an edit counts as tested only while every file of its run is unchanged.
"""

from collections.abc import Iterator, Sequence

from lsprotocol import types

from aotlens.view.step_memory.advice import advice_fixes
from lsp_server.translate.actions import workspace_edit
from lsp_server.translate.diagnostics import uri_of
from lsp_server.translate.lenses import LOWER_PEAK
from lsp_server.translate.ranges import overlaps, span_range
from lsp_server.translate.steps import step_lenses
from lsp_server.views import HeldTrace, Shown, Views

__all__ = ["TITLE", "advice_actions", "advise_actions"]

TITLE = "aotlens: test edits that lower the step's peak (runs the script)"


def advise_actions(
    views: Views, path: str, lines: Sequence[str], wanted: types.Range
) -> Iterator[types.CodeAction]:
    """Yield the command that tests edits, at the optimizer's step of a script without tested ones."""
    if not _is_at_step(views, path, lines, wanted):
        return
    held = next((held for held, _ in views.steps_in(path)), None)
    fit = held.report.fit if held is not None else None
    if held is not None and held.is_fresh and fit is not None and fit.advice:
        return
    script = path if held is None else held.key[0]
    command = types.Command(title=TITLE, command=LOWER_PEAK, arguments=[uri_of(views, script)])
    yield types.CodeAction(title=TITLE, kind=types.CodeActionKind.RefactorRewrite, command=command)


def advice_actions(
    views: Views, path: str, lines: Sequence[str], wanted: types.Range
) -> Iterator[types.CodeAction]:
    """Yield the tested edits at the optimizer's step, and each where it changes the source."""
    is_at_step = _is_at_step(views, path, lines, wanted)
    for held, view in views.steps_in(path):
        fit = held.report.fit
        if fit is None or not held.is_fresh:
            continue
        for fix in advice_fixes(fit):
            ranges = [span_range(view, edit.span) for edit in fix.edits if held.path_of(edit.span) == path]
            is_here = any(text_range is not None and overlaps(text_range, wanted) for text_range in ranges)
            edit = workspace_edit(views, Shown(held, view, frozenset()), fix)
            if edit is not None and (is_here or (is_at_step and _has_step(held, path))):
                kind = types.CodeActionKind.RefactorRewrite
                yield types.CodeAction(title=f"tested: {fix.title}", kind=kind, edit=edit)


def _is_at_step(views: Views, path: str, lines: Sequence[str], wanted: types.Range) -> bool:
    lenses = step_lenses(views, path, uri_of(views, path), lines)
    return any(wanted.start.line <= lens.range.start.line <= wanted.end.line for lens in lenses)


def _has_step(held: HeldTrace, path: str) -> bool:
    """Return True for the result of the script itself; it may also have lines in files that it imports."""
    return held.key[0] == path
