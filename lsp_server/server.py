"""The language server with all of its features.

Invariant: everything up to the answer to `initialize` is cheap; torch is loaded by the worker, in its own
process, from `initialized` on.
"""

from collections.abc import Callable
from typing import Any, BinaryIO

from lsprotocol import types

from aotlens._version import __version__
from aotlens.worker.client import WorkerClient
from lsp_server import commands, handlers, navigation
from lsp_server.app import Server
from lsp_server.first_answer import FirstAnswer, Replayed
from lsp_server.protocol import Protocol, signature_of
from lsp_server.runs.tracer import WorkerFactory
from lsp_server.streams import print_to_stderr
from lsp_server.translate.actions import SHOW_KIND, TRACE_KIND
from lsp_server.transport import serve_stdio, serve_tcp

NOTIFICATIONS: dict[str, Callable[..., Any]] = {
    types.INITIALIZED: commands.on_initialized,
    types.SHUTDOWN: commands.on_shutdown,
    types.TEXT_DOCUMENT_DID_SAVE: commands.on_save,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: commands.on_configuration,
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: commands.on_watched_files,
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL: commands.on_progress_cancel,
    commands.TRUST: commands.on_trust,
    commands.DOCUMENT: commands.read_document,
}

OPTIONS: dict[str, object] = {
    types.TEXT_DOCUMENT_CODE_ACTION: types.CodeActionOptions(
        code_action_kinds=[
            types.CodeActionKind.QuickFix,
            types.CodeActionKind.RefactorRewrite,
            TRACE_KIND,
            SHOW_KIND,
        ]
    ),
    types.TEXT_DOCUMENT_DID_SAVE: types.SaveOptions(include_text=False),
}


def serve_streams(reader: Replayed, writer: BinaryIO, first: FirstAnswer | None) -> int:
    """Serve the client of two streams; return the exit code of the protocol."""
    server = build_server(WorkerClient)
    try:
        return serve_stdio(server, reader, writer, first)
    finally:
        server.end()


def serve_one(host: str, port: int) -> int:
    """Serve the first client that connects; return the exit code of the protocol, or 2."""
    server = build_server(WorkerClient)
    try:
        return serve_tcp(server, host, port)
    except OSError as error:
        print_to_stderr(f"cannot serve on {host}:{port}: {error.strerror}")
        return 2
    finally:
        server.end()


def build_server(worker_factory: WorkerFactory) -> Server:
    """Return a server with every feature, which traces with the factory's worker."""
    server = Server(__version__, worker_factory)
    features: dict[str, Any] = {**handlers.FEATURES, **navigation.FEATURES, **NOTIFICATIONS}
    for name, handler in features.items():
        server.feature(name, OPTIONS.get(name))(handler)
    named: dict[str, Any] = dict(commands.COMMANDS)
    assert isinstance(server.protocol, Protocol)
    server.protocol.signatures = {name: signature_of(command) for name, command in named.items()}
    for name, command in named.items():
        server.command(name)(command)
    return server
