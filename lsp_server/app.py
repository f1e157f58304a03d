"""The server's state, and the messages that it sends without a request.

Invariant: every notification and every request to the client is one that its capabilities allow.
"""

import asyncio
import logging
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.exceptions import FeatureNotificationError, FeatureRequestError, JsonRpcException, PyglsError
from pygls.lsp.server import LanguageServer

from aotlens.errors import UserError
from lsp_server.client import Client, client_of
from lsp_server.protocol import Protocol
from lsp_server.runs.fix_trials import FixTrials
from lsp_server.runs.step_runs import StepRuns
from lsp_server.runs.trace_log import age_text, named_log, read_log
from lsp_server.runs.tracer import Tracer, WorkerFactory
from lsp_server.settings import Settings
from lsp_server.text.document import Document
from lsp_server.text.targets import Scan, scan
from lsp_server.translate.diagnostics import BAD_EXAMPLE, bad_example, diagnostics, uri_of
from lsp_server.translate.pages import Page, text_of
from lsp_server.views import Views, read_lines, real_path
from lsp_server.written import WrittenPages

NAME = "aotlens"
STATUS = "aotlens/status"
UNREADABLE = "aotlens: the editor sent a message that cannot be read; `aotlens lsp --log-file FILE` logs it"
SETTLE_S = 0.15
"""The time to wait for another edit before diagnostics are sent again."""

ErrorSource = type[PyglsError] | type[JsonRpcException]

logger = logging.getLogger(__name__)


class Server(LanguageServer):
    """One client's session."""

    def __init__(self, version: str, worker_factory: WorkerFactory) -> None:
        super().__init__(
            NAME, version, types.TextDocumentSyncKind.Incremental, protocol_cls=Protocol, max_workers=4
        )
        self.views = Views()
        self.views.rule_address = self.rule_address
        self.written = WrittenPages()
        self.settings = Settings()
        self.tracer = Tracer(self, self.views, worker_factory)
        self.tracer.on_change = self.send_status
        self.fix_trials = FixTrials(self, self.views)
        self.step_runs = StepRuns(self, self.views)
        self.exit_code = 1
        """The exit code of the process: 0 once the client has sent `shutdown`."""
        self.problems: list[str] = []
        """Invalid settings that were read before messages to the client are allowed."""
        self._background: set[asyncio.Task[object]] = set()
        self._shown_messages: set[str] = set()
        self._published: dict[str, types.PublishDiagnosticsParams] = {}
        """The diagnostics last sent, by path; files without findings have no entry."""
        self._unsure: set[str] = set()
        """Files opened since then: a client may have dropped the diagnostics of a file that it closed."""
        self._logs: dict[Path, float] = {}
        """Logs that projects name, with the time of the version that is shown."""
        self._settling: dict[str, asyncio.TimerHandle] = {}
        self._scans: dict[str, tuple[int | None, Scan]] = {}

    def background(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine that no request waits for; its failure is reported as ours."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[object]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.report_server_error(error, FeatureNotificationError)

    # Open documents

    def document(self, uri: str) -> tuple[str, Document] | None:
        """Return the path and text of an open file; None for a notebook's cell or an unsaved buffer."""
        path = path_of(uri)
        document = self.views.documents.get(path) if path else None
        return (path, document) if path and document else None

    async def scan(self, path: str, document: Document) -> Scan:
        """Return the targets of a text, read once per version and in a thread, since a long text takes a
        second.

        A text that does not parse has the targets of its last version that did.
        """
        version, seen = self._scans.get(path, (None, Scan()))
        if path in self._scans and version == document.version:
            return seen
        version, lines = document.version, tuple(document.lines)
        now = await asyncio.get_running_loop().run_in_executor(None, scan, lines, path)
        seen = now or Scan(targets=seen.targets)
        if self.views.documents.get(path) is document:
            self._scans[path] = (version, seen)
        return seen

    @property
    def client(self) -> Client:
        return self.views.client

    def set_capabilities(self, capabilities: types.ClientCapabilities) -> None:
        """Store the client's capabilities."""
        self.views.client = client_of(capabilities)

    def open_document(self, path: str, document: Document) -> None:
        self.views.opened(path, document)
        self._unsure.add(path)
        self.background(self.scan_and_publish(path))
        self.background(self.attach_log(path))
        self.background(self.attach_step(path))

    async def attach_step(self, path: str) -> None:
        """Show the last result of `aotlens fit` for a script that was opened."""
        if await self.step_runs.attach(path, self.settings):
            self.publish_all()
            self.refresh()

    async def attach_log(self, path: str) -> None:
        """Show the facts of the log that the file's project names, once for each time that it was written."""
        loop = asyncio.get_running_loop()
        log = await loop.run_in_executor(None, named_log, path)
        if log is None or self._logs.get(log.path) == log.written_at:
            return
        self._logs[log.path] = log.written_at
        report = await loop.run_in_executor(None, read_log, log)
        if isinstance(report, str):
            self._show_prefixed(types.MessageType.Warning, report)
            return
        name = str(log.folder / "pyproject.toml")
        snapshot = self.views.snapshot(name)
        indices = await loop.run_in_executor(None, self.views.prepare, report, name, ())
        self.views.hold((name, None), report, indices, snapshot)
        self._show_prefixed(types.MessageType.Info, age_text(log, report))
        self.publish_all()
        self.refresh()

    def _show_prefixed(self, kind: types.MessageType, message: str) -> None:
        self.window_show_message(types.ShowMessageParams(kind, f"aotlens: {message}"))

    def close_document(self, path: str) -> None:
        self.views.closed(path)
        self.background(self.reread([path]))
        self._scans.pop(path, None)
        settling = self._settling.pop(path, None)
        if settling is not None:
            settling.cancel()

    async def reread(self, paths: list[str]) -> None:
        """Move the facts about closed files to the lines of their text on disk."""
        for path in paths:
            if path in self.views.files() and path not in self.views.documents:
                lines = await asyncio.get_running_loop().run_in_executor(None, read_lines, path)
                if path not in self.views.documents:
                    self.views.replaced(path, lines)
            self.publish(path)
        self.refresh()

    # Messages to the client

    def publish_all(self) -> None:
        for path in sorted(self.views.files() | self._published.keys()):
            self.publish(path)

    def publish(self, path: str) -> None:
        """Send a file's diagnostics, with the version of the text that they belong to, if they changed."""
        current = diagnostics(self.views, path)
        document = self.views.documents.get(path)
        if document is not None:
            version, seen = self._scans.get(path, (None, Scan()))
            if version == document.version:
                # The scan of the present text reports every bad example, also those that a trace reported.
                current = [diagnostic for diagnostic in current if diagnostic.code != BAD_EXAMPLE]
                current += [bad_example(self.views, example, document) for example in seen.bad_examples]
        elif not self._is_ours(path):
            current = []
        last = self._published.get(path)
        if not current and last is None:
            return
        version = document.version if document and self.client.diagnostic_versions else None
        params = types.PublishDiagnosticsParams(uri_of(self.views, path), current, version=version)
        if params == last and path not in self._unsure:
            return
        self._unsure.discard(path)
        if current:
            self._published[path] = params
        else:
            del self._published[path]
        self.text_document_publish_diagnostics(params)

    def _is_ours(self, path: str) -> bool:
        """Return True if findings in a closed file concern the user; those in installed packages do not."""
        roots = [path_of(folder.uri) for folder in self.workspace.folders.values()]
        inside = any(Path(path).is_relative_to(root) for root in [self.tracer.cwd, *roots] if root)
        return inside and "site-packages" not in Path(path).parts

    async def scan_and_publish(self, path: str) -> None:
        document = self.views.documents.get(path)
        if document is not None:
            await self.scan(path, document)
            self.publish(path)

    def publish_soon(self, path: str) -> None:
        """As `scan_and_publish`, once the edits pause."""
        waiting = self._settling.pop(path, None)
        if waiting is not None:
            waiting.cancel()
        self._settling[path] = asyncio.get_running_loop().call_later(
            SETTLE_S, lambda: self.background(self.scan_and_publish(path))
        )

    def refresh(self) -> None:
        """Ask the client to request hints and lenses again, if it supports that."""
        if self.client.refreshes_hints:
            self.workspace_inlay_hint_refresh(None)
        if self.client.refreshes_lenses:
            self.workspace_code_lens_refresh(None)

    def send_status(self) -> None:
        """Send the targets that are being traced, and that texts of open pages may have changed."""
        if self.settings.status:
            running = [{"script": script, "qualname": name} for script, name in self.tracer.running]
            self.protocol.notify(STATUS, {"running": running, "traced": len(self.views.traces)})

    def say(self, message: str, kind: types.MessageType = types.MessageType.Error) -> None:
        self.window_show_message(types.ShowMessageParams(type=kind, message=message))

    def say_once(self, message: str, kind: types.MessageType = types.MessageType.Error) -> None:
        if message not in self._shown_messages:
            self._shown_messages.add(message)
            self.say(message, kind)

    def report_server_error(self, error: Exception, source: ErrorSource) -> None:
        """One popup per kind of failure of ours; a request's own failure is its answer."""
        logger.error("%s", error, exc_info=error)
        if source is JsonRpcException:
            self.say_once(UNREADABLE)
        elif source is not FeatureRequestError:
            self.say_once(f"aotlens: a message could not be handled ({type(error).__name__}); see the log")

    def settings_for(self, path: str) -> Settings:
        """Return the settings for a file, with those of its project; a project's error is shown once."""
        try:
            return self.settings.for_file(path)
        except UserError as error:
            self.say_once(str(error), types.MessageType.Warning)
            return self.settings

    # Read-only documents

    def page_uri(self, page: Page) -> str | None:
        """Return the address at which the client can open a page; None when no trace has it."""
        text = text_of(self.views, page)
        if text is None:
            return None
        if self.settings.virtual_documents:
            return page.uri
        return self.written.page(page, text)

    def page_of(self, uri: str) -> Page | None:
        """Return the page written to a file, by the file's address."""
        path = path_of(uri)
        return self.written.page_at(Path(path).as_uri()) if path else None

    def rule_address(self, code: str) -> str | None:
        """Return the page that explains a code; None for a code without a rule."""
        try:
            return self.written.rule(code)
        except UserError:
            return None

    def cancel_runs(self, *, path: str | None = None, token: str | int | None = None) -> int:
        """Stop the traces and runs of a script or of a progress bar, or all; return how many."""
        kinds = (self.tracer, self.fix_trials, self.step_runs)
        return sum(runs.cancel(path=path, token=token) for runs in kinds)

    def end(self) -> None:
        """Stop all processes and delete all files."""
        self.tracer.restart()
        self.fix_trials.end()
        self.step_runs.end()
        self.written.remove()

    def show_document(self, uri: str, line: int = 0) -> bool:
        """Ask the client to open a document at a line (0-based); return False when it cannot."""
        if not self.client.shows_documents:
            if not self.settings.virtual_documents:  # the client opens the page named in the answer
                self.say(f"to read: {path_of(uri)}", types.MessageType.Info)
            return False
        start = types.Position(line, 0)
        params: Any = types.ShowDocumentParams(uri=uri, take_focus=True, selection=types.Range(start, start))
        self.window_show_document(params)
        return True


def path_of(uri: str) -> str | None:
    """Return the real path of a `file:` address; None for any other scheme."""
    parts = urlparse(uri)
    if parts.scheme != "file":
        return None
    path = unquote(parts.path)
    if os.name == "nt":
        path = path.lstrip("/")
    return real_path(path)
