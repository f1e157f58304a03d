"""Edits that the user may want where there is no finding, as code actions.

Invariant: nothing is parsed on the server's loop: it collects candidates, and `make` turns them into edits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lsprotocol import types

from aotlens.diagnostics.checkpoint_edit import checkpointed, source_text
from aotlens.diagnostics.inplace_edit import bind_new_value, write_to_clone
from aotlens.model.report import Fix, Input, Site
from aotlens.view.quantities import human_bytes
from lsp_server.index import Spot, saved_bytes_inside
from lsp_server.text.document import Document, contents
from lsp_server.text.positions import convert
from lsp_server.translate.actions import edit_of, workspace_edit
from lsp_server.views import Shown, Views


@dataclass(frozen=True, slots=True)
class EditCandidates:
    """A trace's facts at a position: the writes there, and the calls whose values are saved for the
    backward."""

    shown: Shown
    writes: tuple[tuple[Input, Site], ...]
    saving_calls: tuple[tuple[Spot, int], ...]
    """Innermost first, each with the bytes that it saves."""


def candidates_at(views: Views, path: str, cursor: types.Position) -> list[EditCandidates]:
    """Return the candidates at a position, from each trace that knows it."""
    wanted = []
    for shown in views.shown_in(path):
        position = shown.view.traced_position(cursor.line, cursor.character)
        spots = (
            [spot for spot in shown.view.index.spots_at(*position) if shown.has(spot.target)]
            if position
            else []
        )
        writes = [fact for spot in spots for fact in spot.inputs if fact[0].kind == "UserInput"]
        keepers = [(spot, size) for spot in spots if (size := saved_bytes_inside(spot))]
        if writes or keepers:
            wanted.append(EditCandidates(shown, tuple(writes), tuple(keepers)))
    return wanted


def fixes_for(wanted: Sequence[EditCandidates]) -> list[tuple[Shown, Fix]]:
    """Return the possible edits, each once; none in a file that differs from the traced text."""
    made: dict[str, tuple[Shown, Fix]] = {}
    for change in wanted:
        view = change.shown.view
        if tuple(contents(source_text(view.index.file))) == view.lines.traced:
            for fix in _fixes(change):
                made.setdefault(fix.title, (change.shown, fix))
    return list(made.values())


def refactors(views: Views, made: Sequence[tuple[Shown, Fix]]) -> list[types.CodeAction]:
    """Return actions for the edits whose lines are still as they were traced."""
    edits = [(fix.title, workspace_edit(views, shown, fix)) for shown, fix in made]
    return [_action(title, edit) for title, edit in edits if edit is not None]


def grad_action(views: Views, document: Document, fix: Fix) -> types.CodeAction:
    """Return an action for a fix in the current text of the document."""

    def position(line: int, col: int) -> types.Position:
        return types.Position(line - 1, convert(document.line(line - 1), col, "utf-8", views.encoding))

    spans = [(edit.span, edit.text) for edit in fix.edits]
    edits = [
        types.TextEdit(
            types.Range(position(span.line, span.col), position(span.end_line, span.end_col)), text
        )
        for span, text in spans
    ]
    return _action(fix.title, edit_of(views, {document.uri: (document.version, edits)}))


def _action(title: str, edit: types.WorkspaceEdit) -> types.CodeAction:
    return types.CodeAction(title=title, kind=types.CodeActionKind.RefactorRewrite, edit=edit)


def _fixes(wanted: EditCandidates) -> list[Fix]:
    fixes = [
        change(site, row.name) for row, site in wanted.writes for change in (bind_new_value, write_to_clone)
    ]
    calls = ((checkpointed(spot), size) for spot, size in wanted.saving_calls)
    fixes += [_checkpoint(fix, size) for fix, size in calls if fix is not None][:1]
    return [fix for fix in fixes if fix is not None]


def _checkpoint(fix: Fix, size_bytes: int) -> Fix:
    what = fix.title[0].lower() + fix.title[1:]
    return replace(fix, title=f"Checkpoint this call: {what} (it saves {human_bytes(size_bytes)})")
