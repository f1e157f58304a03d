"""Requests and notifications: each handler gets the document, calls a translator and returns its result.

Invariant: no handler waits for a trace, reads a project's files, or knows a report's fields.
"""

import asyncio

from lsprotocol import types

from lsp_server.app import Server, path_of
from lsp_server.rewrites import NO_GRAD, grad_restored
from lsp_server.settings import Settings, from_data
from lsp_server.text.document import Document, TextChange
from lsp_server.text.positions import Encoding
from lsp_server.text.targets import Scan, unmarked_functions
from lsp_server.translate.actions import code_actions, example_actions, is_wanted, lens_actions, trace_actions
from lsp_server.translate.advice import advice_actions, advise_actions
from lsp_server.translate.fixes import tested_actions, try_actions
from lsp_server.translate.hints import inlay_hints
from lsp_server.translate.lenses import OPEN_TUI, code_lenses
from lsp_server.translate.refactors import candidates_at, fixes_for, grad_action, refactors
from lsp_server.translate.steps import step_hints, step_lenses

Actions = list[types.CodeAction] | list[types.Command]


def on_open(server: Server, params: types.DidOpenTextDocumentParams) -> None:
    item = params.text_document
    path = path_of(item.uri)
    if path is not None:
        server.open_document(path, Document(item.uri, item.text, item.version))


def on_change(server: Server, params: types.DidChangeTextDocumentParams) -> None:
    opened = server.document(params.text_document.uri)
    if opened is None:
        return
    path, document = opened
    for change in params.content_changes:
        server.views.edited(path, document.apply(_text_change(change), server.views.encoding))
    document.version = params.text_document.version
    server.publish_soon(path)


def on_close(server: Server, params: types.DidCloseTextDocumentParams) -> None:
    path = path_of(params.text_document.uri)
    if path is not None:
        server.close_document(path)


def on_inlay_hint(server: Server, params: types.InlayHintParams) -> list[types.InlayHint] | None:
    opened = server.document(params.text_document.uri)
    if opened is None:
        return None
    shown = server.views.shown_in(opened[0])
    hints = [
        hint
        for trace_view in shown
        for hint in inlay_hints(server.views, trace_view, server.settings, params.range)
    ]
    return hints + step_hints(server.views, opened[0], server.settings, params.range)


async def on_code_lens(server: Server, params: types.CodeLensParams) -> list[types.CodeLens] | None:
    opened = server.document(params.text_document.uri)
    if opened is None or not server.settings.code_lens:
        return None
    path, document = opened
    seen = await server.scan(path, document)
    lenses = _lenses(server, path, document, seen)
    return [lens for lens in lenses if server.settings.terminal or not _opens_tui(lens)]


def _lenses(server: Server, path: str, document: Document, seen: Scan) -> list[types.CodeLens]:
    lenses = code_lenses(server.views, path, document.uri, seen.targets)
    return lenses + step_lenses(server.views, path, document.uri, document.lines)


async def on_code_action(server: Server, params: types.CodeActionParams) -> Actions | None:
    opened = server.document(params.text_document.uri)
    if opened is None:
        return None
    path, document = opened
    line = params.range.start.line
    seen = await server.scan(path, document)
    offered = await _refactors(server, path, document, params.range.start)
    actions = [
        *tested_actions(server.views, path, params.range),
        *code_actions(server.views, path, params.range),
        *try_actions(server.views, path, params.range),
        *advice_actions(server.views, path, document.lines, params.range),
        *advise_actions(server.views, path, document.lines, params.range),
        *example_actions(server.views, document, unmarked_functions(seen, line)),
        *trace_actions(document, seen.targets, line),
    ]
    if not server.client.lenses:
        actions += lens_actions(_lenses(server, path, document, seen), line)
    titles = {action.title for action in actions}
    actions += [action for action in offered if action.title not in titles]
    only = params.context.only
    wanted = [candidate for candidate in actions if only is None or is_wanted(candidate, only)]
    if server.client.action_literals:
        return wanted
    return [candidate.command for candidate in wanted if candidate.command is not None]


async def _refactors(
    server: Server, path: str, document: Document, cursor: types.Position
) -> list[types.CodeAction]:
    views, version = server.views, document.version
    loop = asyncio.get_running_loop()
    made = await loop.run_in_executor(None, fixes_for, candidates_at(views, path, cursor))
    if NO_GRAD.search(document.line(cursor.line)):
        lines = tuple(document.lines)
        fix = await loop.run_in_executor(None, grad_restored, lines, path, cursor.line)
        if fix is not None and document.version == version:
            return [*refactors(views, made), grad_action(views, document, fix)]
    return refactors(views, made)


def _opens_tui(lens: types.CodeLens) -> bool:
    return lens.command is not None and lens.command.command == OPEN_TUI


def on_initialize(server: Server, params: types.InitializeParams) -> None:
    server.set_capabilities(params.capabilities)
    server.views.encoding = _encoding(server.workspace.position_encoding)
    server.settings, problems = from_data(params.initialization_options, Settings(), at_start=True)
    server.problems += problems
    folders = [folder.uri for folder in params.workspace_folders or ()]
    root = server.workspace.root_uri or next(iter(folders), None)
    server.tracer.cwd = path_of(root) if root else None


def _encoding(chosen: str | None) -> Encoding:
    """Return the encoding that pygls agreed on with the client."""
    known: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
    value = getattr(chosen, "value", chosen)
    return next((encoding for encoding in known if encoding == value), "utf-16")


def _text_change(change: types.TextDocumentContentChangeEvent) -> TextChange:
    if isinstance(change, types.TextDocumentContentChangeWholeDocument):
        return TextChange(change.text)
    start, end = change.range.start, change.range.end
    return TextChange(change.text, (start.line, start.character), (end.line, end.character))


FEATURES = {
    types.INITIALIZE: on_initialize,
    types.TEXT_DOCUMENT_DID_OPEN: on_open,
    types.TEXT_DOCUMENT_DID_CHANGE: on_change,
    types.TEXT_DOCUMENT_DID_CLOSE: on_close,
    types.TEXT_DOCUMENT_INLAY_HINT: on_inlay_hint,
    types.TEXT_DOCUMENT_CODE_LENS: on_code_lens,
    types.TEXT_DOCUMENT_CODE_ACTION: on_code_action,
}
