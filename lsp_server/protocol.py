"""Changes to pygls' protocol: lost requests, commands that outlive a cancellation, and lines split wrongly.

Invariant: every request is answered, even an unreadable one; the handler of a cancelled command is cancelled.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

from lsprotocol import types
from lsprotocol.types import ResponseError
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.protocol import JsonRPCNotification, LanguageServerProtocol, lsp_method

from lsp_server.first_answer import FirstAnswer

IGNORED = "$/aotlens.unreadable"
"""Stands in for a message that was answered here already; a `$/` notification without handler is dropped."""

Command = Callable[..., Awaitable[object]]

ProgressToken = str | int

WORK_DONE: ContextVar[ProgressToken | None] = ContextVar("work_done", default=None)
"""The token under which the client expects the progress of the running command."""


class Protocol(LanguageServerProtocol):
    """pygls' protocol with those three cured."""

    signatures: Mapping[str, inspect.Signature] = {}
    """The parameters of each command, by its name."""
    first: FirstAnswer | None = None
    """The request `initialize`, until it is handled, if it was read before the server was loaded."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Structure a message as pygls does, but answer a request with bad parameters with an error."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" not in data or "method" not in data:
                raise
            self._send_response(data["id"], error=error.to_response_error())
            return JsonRPCNotification(method=IGNORED, jsonrpc=self.VERSION, params=None)

    def _send_response(
        self, msg_id: str | int, result: Any = None, error: ResponseError | None = None
    ) -> None:
        """Send an answer; that to `initialize` is stored, and not sent if the client has it already."""
        first = self.first
        if first is None or msg_id != first.number:
            super()._send_response(msg_id, result, error)
            return
        self.first = None
        if error is None:
            first.learn(json.loads(json.dumps(result, default=self._serialize_message)))
        if first.result is None:
            super()._send_response(msg_id, result, error)

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(  # type: ignore[override]  # pygls runs coroutines as well
        self, params: types.ExecuteCommandParams
    ) -> object:
        """Run a command in a coroutine, so that cancelling the request cancels the command."""
        handler = self.fm.commands.get(params.command)
        if handler is None:
            known = ", ".join(sorted(self.fm.commands))
            raise JsonRpcInvalidParams.of(ValueError(f"no command {params.command!r}; known are {known}"))
        arguments = params.arguments or ()
        _check_arguments(params.command, self.signatures[params.command], arguments)
        WORK_DONE.set(params.work_done_token)
        return await cast(Command, handler)(*arguments)

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        result = yield from super().lsp_initialize(params)
        commands = result.capabilities.execute_command_provider
        if commands is not None:
            commands.work_done_progress = True
        return result

    # The texts are held by `lsp_server.text.document`, which splits lines as the protocol says; pygls would
    # keep a second copy that also splits at form feeds.

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(
        self, params: types.DidOpenTextDocumentParams
    ) -> Generator[Any, Any, None]:
        yield self.fm.features[types.TEXT_DOCUMENT_DID_OPEN], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(
        self, params: types.DidChangeTextDocumentParams
    ) -> Generator[Any, Any, None]:
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(
        self, params: types.DidCloseTextDocumentParams
    ) -> Generator[Any, Any, None]:
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CLOSE], (params,), None


def signature_of(command: Command) -> inspect.Signature:
    """Return the parameters that a client sends: all but the server, which comes first."""
    whole = inspect.signature(command)
    return whole.replace(parameters=list(whole.parameters.values())[1:])


def _check_arguments(name: str, wanted: inspect.Signature, arguments: Sequence[object]) -> None:
    """Every command takes strings, the last of which may be missing or null."""
    try:
        wanted.bind(*arguments)
    except TypeError as error:
        message = f"{name} takes [{', '.join(wanted.parameters)}], got {list(arguments)}: {error}"
        raise JsonRpcInvalidParams.of(ValueError(message)) from None
    for argument in arguments:
        if not isinstance(argument, str | None):
            raise JsonRpcInvalidParams.of(ValueError(f"{name} takes strings, got {argument!r}"))
