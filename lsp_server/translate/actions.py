"""Code actions: the fixes of findings, "explain this rule", and an example for a function that has none."""

from collections.abc import Iterator, Sequence

from lsprotocol import types

from aotlens.report.records import Fix
from lsp_server.document import Document
from lsp_server.targets import Bare, Found
from lsp_server.translate.diagnostics import diagnostic, uri_of
from lsp_server.translate.lenses import EXPLAIN, TRACE
from lsp_server.translate.ranges import overlaps, span_range
from lsp_server.views import FileView, Views, real_path

TRACE_KIND = "source.aotlens.trace"


def code_actions(views: Views, path: str, wanted: types.Range, versioned: bool) -> list[types.CodeAction]:
    """The fixes of the findings that touch a range; an edit on changed text is not offered."""
    found: list[types.CodeAction] = []
    explained: set[str] = set()
    for view, finding in views.findings(path):
        shown = diagnostic(views, view, finding)
        if shown is None or not overlaps(shown.range, wanted):
            continue
        for number, fix in enumerate(finding.fixes):
            edit = _workspace_edit(views, view, fix, versioned)
            if edit is not None:
                found.append(
                    types.CodeAction(
                        title=fix.title,
                        kind=types.CodeActionKind.QuickFix,
                        diagnostics=[shown],
                        is_preferred=True if number == 0 else None,
                        edit=edit,
                    )
                )
        if finding.code not in explained:
            explained.add(finding.code)
            title = f"Explain {finding.code}"
            command = types.Command(title=title, command=EXPLAIN, arguments=[finding.code])
            found.append(
                types.CodeAction(
                    title=title, kind=types.CodeActionKind.QuickFix, diagnostics=[shown], command=command
                )
            )
    return found


def example_actions(
    document: Document, found: tuple[Bare, ...], versioned: bool
) -> Iterator[types.CodeAction]:
    """A comment above a function, so that it can be traced without running the script."""
    for function in found:
        place = types.Position(function.first_line, 0)
        text = f"# aotlens: example {', '.join(function.arguments)}\n"
        edits = [types.TextEdit(range=types.Range(place, place), new_text=text)]
        yield types.CodeAction(
            title=f"Add an example for {function.qualname}, to trace it",
            kind=types.CodeActionKind.RefactorRewrite,
            edit=_edit_of(document.uri, document.version, edits, versioned),
        )


def trace_actions(document: Document, found: tuple[Found, ...], line: int) -> Iterator[types.CodeAction]:
    """The lens "Trace" once more, for editors that show no lenses."""
    for target in found:
        if target.line == line:
            title = f"Trace {target.qualname or 'what this compiles'}"
            command = types.Command(title=title, command=TRACE, arguments=[document.uri, target.qualname])
            yield types.CodeAction(title=title, kind=TRACE_KIND, command=command)


def is_wanted(action: types.CodeAction, only: Sequence[types.CodeActionKind | str]) -> bool:
    """Whether the action is of a kind that was asked for, or of a kind below one."""
    kind = _name(action.kind)
    return any(kind == _name(wanted) or kind.startswith(f"{_name(wanted)}.") for wanted in only)


def _name(kind: types.CodeActionKind | str | None) -> str:
    return kind.value if isinstance(kind, types.CodeActionKind) else kind or ""


def _workspace_edit(views: Views, view: FileView, fix: Fix, versioned: bool) -> types.WorkspaceEdit | None:
    edits = []
    for edit in fix.edits:
        place = span_range(view, edit.span)
        if place is None or real_path(edit.span.file) != view.index.file:
            return None
        edits.append(types.TextEdit(range=place, new_text=edit.text))
    document = views.documents.get(view.index.file)
    uri = uri_of(views, view.index.file)
    return _edit_of(uri, document.version if document else None, edits, versioned)


def _edit_of(
    uri: str, version: int | None, edits: list[types.TextEdit], versioned: bool
) -> types.WorkspaceEdit:
    if not versioned:
        return types.WorkspaceEdit(changes={uri: edits})
    document = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version)
    change = types.TextDocumentEdit(text_document=document, edits=list(edits))
    return types.WorkspaceEdit(document_changes=[change])
