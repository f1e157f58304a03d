"""What the user may ask for: the server's commands, and the notifications that lead to a trace.

Invariant: user code runs only from here, because a person asked, or saved a file in a workspace that they
trust and set `aotlens.trace` to `onSave`.
"""

import asyncio
import os
import sys
from dataclasses import replace

from lsprotocol import types

from aotlens.errors import UserError
from aotlens.report import rules
from aotlens.worker.protocol import Answer
from lsp_server.app import Server, path_of
from lsp_server.settings import from_data
from lsp_server.tracer import Result
from lsp_server.translate.lenses import CANCEL, EXPLAIN, SHOW, TRACE
from lsp_server.translate.pages import Page, parse, parts_of, text_of

RESTART, CLEAR, DEBUG = "aotlens.restart", "aotlens.clear", "aotlens.printDebugInformation"
TRUST = "aotlens/trusted"
DOCUMENT = "aotlens/document"


async def trace(server: Server, uri: str, qualname: str | None = None) -> Result:
    """Trace a file's targets, or one of them, and show what came back."""
    path = path_of(uri)
    refusal = _refusal(server, path, uri)
    if path is None or refusal:
        server.say(refusal, types.MessageType.Warning)
        return {"failure": "refused", "message": refusal}
    if _is_unsaved(server, path):
        message = f"{os.path.basename(path)} has unsaved changes: it is traced as it was saved"
        server.say(message, types.MessageType.Info)
    return await _trace(server, path, qualname, asked=True)


async def cancel(server: Server, uri: str | None = None) -> int:
    """Stop the traces of a file, or all; how many."""
    return server.tracer.cancel(path=path_of(uri) if uri else None)


async def show(server: Server, uri: str, qualname: str, part: str = "forward") -> Result:
    """Open a program of a traced target as a read-only document."""
    page = Page(path_of(uri) or uri, qualname, part)
    address = server.page_uri(page)
    if address is None:
        message = f"{qualname} has no {part} program: {_known_parts(server, page)}"
        server.say(message, types.MessageType.Warning)
        return {"uri": None, "message": message}
    return {"uri": address, "shown": server.show_document(address)}


async def explain(server: Server, rule: str) -> Result:
    """Open the page of a rule."""
    try:
        text = rules.page(rules.rule(rule))
    except UserError as error:
        server.say(str(error), types.MessageType.Warning)
        return {"uri": None, "message": str(error)}
    address = server.write_page(f"rules/{rule.upper()}.md", text)
    return {"uri": address, "shown": server.show_document(address)}


async def restart(server: Server) -> None:
    """End the tracing process and start a new one."""
    await asyncio.get_running_loop().run_in_executor(None, server.tracer.restart)
    await server.tracer.warm(server.settings)


async def clear(server: Server) -> None:
    """Forget every trace."""
    server.views.forget()
    server.publish_all()
    server.refresh()


async def debug_information(server: Server) -> Result:
    """What a bug report needs; no source text."""
    return {
        "version": server.version,
        "python": sys.version.split()[0],
        "encoding": server.views.encoding,
        "settings": repr(server.settings),
        "open": len(server.views.documents),
        "traces": [[held.key[0], held.key[1], held.version] for held in server.views.traces.values()],
        "running": [list(key) for key in server.tracer.running],
    }


def read_document(server: Server, params: object) -> dict[str, str] | None:
    """The text of an `aotlens:` document; None when no trace has it."""
    uri = params.get("uri") if isinstance(params, dict) else getattr(params, "uri", None)
    page = parse(uri) if isinstance(uri, str) else None
    text = text_of(server.views, page) if page else None
    return None if text is None else {"text": text, "languageId": page.language if page else "python"}


# Notifications


def on_initialized(server: Server, params: types.InitializedParams) -> None:
    for problem in server.problems:
        server.say_once(problem, types.MessageType.Warning)
    server.background(server.tracer.warm(server.settings))


def on_save(server: Server, params: types.DidSaveTextDocumentParams) -> None:
    path = path_of(params.text_document.uri)
    if path is None or not server.settings.traces_on_save:
        return
    server.background(_trace_saved(server, path))


async def _trace_saved(server: Server, path: str) -> None:
    """What was traced before, or else every target, where there is one."""
    held = [name for script, name in (*server.views.traces, *server.views.failures) if script == path]
    document = server.views.documents.get(path)
    if not held and not (document and (await server.scan(path, document)).found):
        return
    for qualname in dict.fromkeys(held or [None]):
        server.background(_trace(server, path, qualname, asked=False))


def on_configuration(server: Server, params: types.DidChangeConfigurationParams) -> None:
    settings = params.settings
    data = settings.get("aotlens", settings) if isinstance(settings, dict) else None
    if data is not None:
        _configure(server, data)
        return
    workspace = server.client_capabilities.workspace
    if workspace and workspace.configuration:
        server.background(_pull_configuration(server))


def on_trust(server: Server, params: object) -> None:
    """The client's user has come to trust the workspace."""
    server.settings = replace(server.settings, trusted=True)
    server.background(server.tracer.warm(server.settings))


def on_progress_cancel(server: Server, params: types.WorkDoneProgressCancelParams) -> None:
    server.tracer.cancel(token=params.token)


def on_shutdown(server: Server, params: None) -> None:
    """The client leaves in good order: nothing more is traced, and the exit code is 0."""
    server.exit_code = 0
    server.tracer.cancel()


async def _trace(server: Server, path: str, qualname: str | None, asked: bool) -> Result:
    answer = await server.tracer.trace(path, qualname, server.settings)
    server.publish_all()
    server.refresh()
    return _result(server, (path, qualname), answer, asked)


def _result(server: Server, key: tuple[str, str | None], answer: Answer, asked: bool) -> Result:
    failure = answer.failure
    if failure is not None:
        if asked and failure.kind != "cancelled":
            server.say(failure.message)
        elif failure.kind == "internal":
            server.say_once(failure.message)
        return {"failure": failure.kind, "message": failure.message}
    held = server.views.traces.get(key)
    targets = held.report.targets if held else ()
    return {"targets": [target.qualname for target in targets], "elapsedMs": answer.elapsed_ms}


def _refusal(server: Server, path: str | None, uri: str) -> str:
    if path is None:
        return f"{uri} is no file on disk: save it as a script to trace it"
    if not server.settings.may_trace:
        return "tracing runs the file's code: trust this workspace first"
    return ""


def _is_unsaved(server: Server, path: str) -> bool:
    snapshot = server.views.snapshot(path)
    server.views.drop(snapshot)
    return bool(snapshot.lines.traced) and not snapshot.lines.is_identity


def _known_parts(server: Server, page: Page) -> str:
    for held in server.views.traces.values():
        for target in held.report.targets:
            if held.key[0] == page.script and target.qualname == page.qualname:
                return f"it has {', '.join(parts_of(target))}"
    return "trace it first"


def _configure(server: Server, data: object) -> None:
    server.settings, problems = from_data(data, server.settings, at_start=False)
    for problem in problems:
        server.say_once(problem, types.MessageType.Warning)
    server.refresh()


async def _pull_configuration(server: Server) -> None:
    item = types.ConfigurationItem(section="aotlens")
    answer = await server.workspace_configuration_async(types.ConfigurationParams(items=[item]))
    if answer and isinstance(answer[0], dict):
        _configure(server, answer[0])


COMMANDS = {
    TRACE: trace,
    CANCEL: cancel,
    SHOW: show,
    EXPLAIN: explain,
    RESTART: restart,
    CLEAR: clear,
    DEBUG: debug_information,
}
