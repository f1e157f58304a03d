"""Whether a command may run a file's code, and the answers of commands without a result.

Invariant: the user sees the reason in the answer to a command, except that it was cancelled.
"""

import os

from lsprotocol import types

from aotlens.model.failure import NOT_THE_FILES, Failure
from lsp_server.app import Server, path_of
from lsp_server.runs.tracer import Result

__all__ = ["failed", "not_run", "not_saved", "say_unsaved", "script_of", "why_not_run"]


def script_of(server: Server, uri: str) -> str | Result:
    """Return the path of a script that may run, or the answer that names the reason why it may not."""
    path = path_of(uri)
    reason = why_not_run(server, path, uri)
    return not_run(server, reason) if path is None or reason else path


def why_not_run(server: Server, path: str | None, uri: str) -> str:
    """Return the reason not to run a file's code; empty without one."""
    if path is None:
        return f"{uri} is not a file on disk: save it as a script to trace it"
    if not server.settings.may_trace:
        return "tracing runs the file's code, so trust this workspace first"
    return ""


def not_run(server: Server, message: str) -> Result:
    server.say(message, types.MessageType.Warning)
    return {"failure": "not-run", "message": message}


def failed(server: Server, failure: Failure, asked: bool = True) -> Result:
    """Report why a command, or a trace on saving, has no result."""
    if asked and failure.kind != "cancelled":
        server.say(failure.message)
    elif failure.kind in NOT_THE_FILES:
        server.say_once(failure.message)
    return {"failure": failure.kind, "message": failure.message}


def is_unsaved(server: Server, path: str) -> bool:
    snapshot = server.views.snapshot(path)
    server.views.drop(snapshot)
    return bool(snapshot.lines.traced) and not snapshot.lines.is_identity


def not_saved(server: Server, path: str, what: str) -> Result | None:
    """Report that edits are not tested on a script with unsaved changes; None for a saved one."""
    if not is_unsaved(server, path):
        return None
    name = os.path.basename(path)
    return not_run(server, f"{name} has unsaved changes: save it first, because {what} on the saved file")


def say_unsaved(server: Server, path: str) -> None:
    if is_unsaved(server, path):
        message = f"{os.path.basename(path)} has unsaved changes: it is traced as it was saved"
        server.say(message, types.MessageType.Info)
