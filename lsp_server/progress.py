"""The progress of one trace in the client's progress bar, with its cancel button.

Invariant: a client that cannot show progress is sent none, and a slow client delays nothing.
"""

import asyncio
from uuid import uuid4

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from aotlens.view.progress import STARTING
from lsp_server.client import Client
from lsp_server.protocol import WORK_DONE, ProgressToken

QUICK_S = 0.2
"""A trace that ends sooner shows no bar."""


class ProgressBar:
    """Visible between `start` and `end`; a stage reported before it is open is shown once it is.

    A command that carries a token of the client's is reported under that token.
    """

    def __init__(self, server: LanguageServer, client: Client, title: str) -> None:
        asked = WORK_DONE.get()
        self.token: ProgressToken = str(uuid4()) if asked is None else asked
        self._has_client_token = asked is not None
        self._server = server
        self._client = client
        self._title = title
        self._stage = str(STARTING)
        self._shown = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._has_client_token or self._client.progress:
            self._task = asyncio.ensure_future(self._begin())

    def report(self, stage: str) -> None:
        self._stage = stage
        if self._shown:
            value = types.WorkDoneProgressReport(message=stage, cancellable=True)
            self._server.work_done_progress.report(self.token, value)

    def end(self, message: str) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._shown:
            self._shown = False
            self._server.work_done_progress.end(self.token, types.WorkDoneProgressEnd(message=message))
        self._server.work_done_progress.tokens.pop(self.token, None)

    async def _begin(self) -> None:
        await asyncio.sleep(QUICK_S)
        try:
            if not self._has_client_token:
                # The trace may end before the client answers, and a cancelled request can take no answer.
                await asyncio.shield(self._server.work_done_progress.create_async(self.token))
        except JsonRpcException:  # the client refused: no bar, the trace continues
            return
        self._shown = True
        value = types.WorkDoneProgressBegin(title=self._title, message=self._stage, cancellable=True)
        self._server.work_done_progress.begin(self.token, value)
