"""`aotlens lsp`: the language server's entry.

Invariant: everything between start and the answer to `initialize` is cheap; torch is loaded by the worker,
in its own process, from `initialized` on.
"""

import argparse
import logging
from collections.abc import Callable
from typing import Any

from lsprotocol import types

from aotlens._version import __version__
from aotlens.worker.client import WorkerClient
from lsp_server import commands, handlers, navigation
from lsp_server.app import Server
from lsp_server.protocol import Protocol, signature_of
from lsp_server.tracer import WorkerFactory
from lsp_server.translate.actions import SHOW_KIND, TRACE_KIND
from lsp_server.transport import LOOPBACK, print_to_stderr, serve_stdio, serve_tcp

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


def main(argv: list[str]) -> int:
    """Serve one client; return 0 after an orderly end, 1 when the client left without `shutdown`."""
    options = _parser().parse_args(argv)
    log_to(options.log_file, options.verbose)
    server = build_server(WorkerClient)
    try:
        if options.tcp is not None:
            return serve_tcp(server, options.host, options.tcp)
        return serve_stdio(server)
    except OSError as error:
        print_to_stderr(f"cannot serve on {options.host}:{options.tcp}: {error.strerror}")
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


def _parser() -> argparse.ArgumentParser:
    about = "The language server, on stdio by default."
    parser = argparse.ArgumentParser(prog="aotlens lsp", description=about, allow_abbrev=False)
    parser.add_argument("--stdio", action="store_true", help="serve on stdio (the default; editors pass it)")
    parser.add_argument(
        "--tcp", type=int, metavar="PORT", help=("serve one connection on this port; 0 takes a free port")
    )
    parser.add_argument(
        "--host", default=LOOPBACK, help="for --tcp (default: %(default)s, this machine only)"
    )
    parser.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)  # editors pass it
    parser.add_argument(
        "--log-file", metavar="FILE", help=("write a log to this file; otherwise nothing is logged")
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log every message too")
    return parser


def log_to(file: str | None, verbose: bool) -> None:
    """Log to a file, or nowhere: an editor shows a server's stderr as errors."""
    root = logging.getLogger()
    if file is None:
        root.addHandler(logging.NullHandler())
        return
    shown = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=file, format=shown, level=logging.INFO)
    # At INFO pygls writes every message's text.
    logging.getLogger("pygls").setLevel(logging.INFO if verbose else logging.WARNING)
