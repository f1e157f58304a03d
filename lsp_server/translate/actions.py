"""Code actions: the fixes of findings, "explain this rule", and an example for a function that has none."""

from collections.abc import Iterator, Mapping, Sequence

from lsprotocol import types

from aotlens.model.report import Fix
from lsp_server.text.document import Document
from lsp_server.text.targets import TextTarget, UnmarkedFunction
from lsp_server.translate.diagnostics import diagnostic, uri_of
from lsp_server.translate.lenses import CHOOSE_GPU, EXPLAIN, SHOW, TRACE, VERIFY
from lsp_server.translate.ranges import overlaps, span_range
from lsp_server.views import Shown, Views

TRACE_KIND = "source.aotlens.trace"
SHOW_KIND = "source.aotlens.show"


def code_actions(views: Views, path: str, wanted: types.Range) -> list[types.CodeAction]:
    """Return the fixes of the findings that touch a range; an edit on changed text is not offered."""
    actions: list[types.CodeAction] = []
    explained: set[str] = set()
    for shown, finding in views.findings(path):
        reported = diagnostic(views, shown, finding)
        if reported is None or not overlaps(reported.range, wanted):
            continue
        for number, fix in enumerate(finding.fixes):
            edit = workspace_edit(views, shown, fix)
            if edit is not None:
                actions.append(
                    types.CodeAction(
                        title=fix.title,
                        kind=types.CodeActionKind.QuickFix,
                        diagnostics=[reported],
                        is_preferred=True if number == 0 and views.client.action_preferred else None,
                        edit=edit,
                    )
                )
        if finding.code not in explained:
            explained.add(finding.code)
            title = f"Explain {finding.code}"
            command = types.Command(title=title, command=EXPLAIN, arguments=[finding.code])
            actions.append(
                types.CodeAction(
                    title=title, kind=types.CodeActionKind.QuickFix, diagnostics=[reported], command=command
                )
            )
    return actions


def example_actions(
    views: Views, document: Document, functions: tuple[UnmarkedFunction, ...]
) -> Iterator[types.CodeAction]:
    """Yield a comment above each function, which makes it traceable without running the script."""
    for function in functions:
        start = types.Position(function.first_line, 0)
        text = f"# aotlens: example {', '.join(function.arguments)}\n"
        edits = [types.TextEdit(range=types.Range(start, start), new_text=text)]
        yield types.CodeAction(
            title=f"Add an example for {function.qualname}, to trace it",
            kind=types.CodeActionKind.RefactorRewrite,
            edit=edit_of(views, {document.uri: (document.version, edits)}),
        )


def trace_actions(
    document: Document, targets: tuple[TextTarget, ...], line: int
) -> Iterator[types.CodeAction]:
    """Yield the lens "Trace" as an action, for editors that show no lenses."""
    for target in targets:
        if target.line == line:
            title = f"Trace {target.qualname or 'what this compiles'}"
            command = types.Command(title=title, command=TRACE, arguments=[document.uri, target.qualname])
            yield types.CodeAction(title=title, kind=TRACE_KIND, command=command)
            title = f"Show the kernels of {target.qualname or 'what this compiles'} for a GPU…"
            command = types.Command(
                title=title, command=CHOOSE_GPU, arguments=[document.uri, target.qualname]
            )
            yield types.CodeAction(title=title, kind=TRACE_KIND, command=command)


def lens_actions(lenses: Sequence[types.CodeLens], line: int) -> Iterator[types.CodeAction]:
    """Yield the lenses of a traced target as actions, for editors that show none; `trace_actions` has
    "Trace"."""
    for lens in lenses:
        command = lens.command
        if lens.range.start.line != line or command is None or command.command not in (SHOW, VERIFY):
            continue
        arguments = tuple(command.arguments or ())
        if command.command == SHOW:
            title = f"Show the {arguments[2]} of {arguments[1]}"
        else:
            title = f"Compare {arguments[1] or 'every target of this file'} with eager"
        again = types.Command(title=title, command=command.command, arguments=list(arguments))
        yield types.CodeAction(title=title, kind=SHOW_KIND, command=again)


def is_wanted(action: types.CodeAction, only: Sequence[types.CodeActionKind | str]) -> bool:
    """Return True if the action's kind, or one above it, was requested."""
    kind = _name(action.kind)
    return any(kind == _name(wanted) or kind.startswith(f"{_name(wanted)}.") for wanted in only)


def _name(kind: types.CodeActionKind | str | None) -> str:
    return kind.value if isinstance(kind, types.CodeActionKind) else kind or ""


def workspace_edit(views: Views, shown: Shown, fix: Fix) -> types.WorkspaceEdit | None:
    """Return a fix's edits in the current texts; None where the text of one was changed."""
    files: dict[str, FileEdits] = {}
    for edit in fix.edits:
        view = shown.view_of(edit.span)
        text_range = span_range(view, edit.span) if view else None
        if view is None or text_range is None:
            return None
        document = views.documents.get(view.index.file)
        version = document.version if document else None
        _, edits = files.setdefault(uri_of(views, view.index.file), (version, []))
        edits.append(types.TextEdit(range=text_range, new_text=edit.text))
    return edit_of(views, files)


FileEdits = tuple[int | None, list[types.TextEdit]]
"""The version of an open document, None for a closed file, and its edits."""


def edit_of(views: Views, files: Mapping[str, FileEdits]) -> types.WorkspaceEdit:
    """Edits by address, in the form that the client takes."""
    if not views.client.versioned_edits:
        return types.WorkspaceEdit(changes={uri: edits for uri, (_, edits) in files.items()})
    changes = [
        types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri, version), list(edits))
        for uri, (version, edits) in files.items()
    ]
    return types.WorkspaceEdit(document_changes=changes)
