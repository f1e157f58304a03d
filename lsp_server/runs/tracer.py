"""Running traces: requests to the worker, cancellation, and storing the answers.

Invariant: the loop only waits; starting the worker, reading files and decoding a report run in threads, user
code in the worker's child. A failure is shown to the user in one message, and the next trace works.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from aotlens.diagnostics.failures import from_failure
from aotlens.errors import AotlensError
from aotlens.model.codec import decode
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.view.progress import phase_of
from aotlens.view.quantities import human_ms, limit_text
from aotlens.worker.client import SubmittedTrace, WorkerClient
from aotlens.worker.protocol import Answer, TraceOptions, TraceRequest
from aotlens.worker.protocol import Progress as StageProgress
from lsp_server.index import FileIndex
from lsp_server.progress import ProgressBar
from lsp_server.settings import Settings
from lsp_server.views import Snapshot, TraceKey, Views

START_S = 120.0
"""The time that a worker may take to load torch on a busy machine."""
SILENCE_S = 30.0
"""The time beyond a trace's own limit after which a silent worker counts as stuck."""
LONGEST_LOG = 20_000
"""Characters of a script's output that go to the editor's log."""

Result = dict[str, object]
Then = Callable[[Answer], Awaitable[Answer]]
"""Handles the worker's answer while the trace still counts as running."""


class WorkerFactory(Protocol):
    """Makes a worker's client; tests replace it."""

    def __call__(
        self, python: str | None = None, cwd: str | None = None, on_log: Callable[[str], None] | None = None
    ) -> WorkerClient: ...


@dataclass(slots=True, eq=False)
class Running:
    """One trace in progress."""

    key: TraceKey
    bar: ProgressBar
    options: TraceOptions
    job: SubmittedTrace | None = None
    stopped: bool = False
    heard_at: float = 0.0
    """The time of the worker's last message about it, on the loop's clock."""

    def stop(self) -> None:
        self.stopped = True
        if self.job is not None:
            self.job.cancel()


class Tracer:
    """The only user of the worker."""

    def __init__(self, server: LanguageServer, views: Views, factory: WorkerFactory) -> None:
        self.cwd: str | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when a trace starts and when one has ended."""
        self._server = server
        self._views = views
        self._factory = factory
        self._worker: WorkerClient | None = None
        self._python: str | None = None
        self._running: list[Running] = []
        self._reader = ThreadPoolExecutor(1, "aotlens-report")
        """Reports are read one after the other: more threads would be no faster, and leave the loop less."""

    @property
    def running(self) -> tuple[TraceKey, ...]:
        return tuple(run.key for run in self._running)

    async def warm(self, settings: Settings) -> None:
        """Load torch in the worker before the first trace; runs no user code."""
        if settings.may_trace:
            await asyncio.get_running_loop().run_in_executor(None, self._client(settings).warm)

    async def trace(
        self, path: str, qualname: str | None, settings: Settings, *, verify: bool = False
    ) -> Answer:
        """Trace and store the answer; a newer trace of the same key cancels this one.

        With `verify` the first call of each target is also compared with eager.
        """
        key = (path, qualname)
        self.cancel(key)
        options = replace(settings.trace_options(), verify=verify)
        snapshot = self._views.snapshot(path)
        hold = partial(self._hold, key, snapshot)
        try:
            return await self._run(key, "Verifying" if verify else "Tracing", options, settings, hold)
        except asyncio.CancelledError:
            self._views.drop(snapshot)
            raise

    async def standalone(self, key: TraceKey, settings: Settings) -> tuple[Report | None, Failure | None]:
        """Return the report of a trace whose module texts need no aotlens; it is neither stored nor shown.

        Such a module has no kernels for a GPU that the machine does not have.
        """
        options = replace(settings.trace_options(), gpu=None, standalone=True)
        reports: list[Report] = []

        async def keep(answer: Answer) -> Answer:
            self._log_output(key, answer)
            if answer.report is not None:
                loop = asyncio.get_running_loop()
                reports.append(await loop.run_in_executor(self._reader, decode, answer.report))
            return answer

        answer = await self._run(key, "Exporting", options, settings, keep)
        return (reports[0] if reports else None), answer.failure

    async def _run(
        self, key: TraceKey, doing: str, options: TraceOptions, settings: Settings, then: Then
    ) -> Answer:
        """Ask the worker, with progress shown, and give its answer to `then`."""
        bar = ProgressBar(self._server, self._views.client, f"{doing} {_shown(key)}")
        running = Running(key, bar, options)
        self._running.append(running)
        self.on_change()
        bar.start()
        answer: Answer | None = None
        try:
            answer = await then(await self._answer(running, settings))
        except asyncio.CancelledError:
            running.stop()
            raise
        finally:
            self._running.remove(running)
            self.on_change()
            bar.end(_outcome(answer))
        return answer

    def cancel(
        self, key: TraceKey | None = None, path: str | None = None, token: str | int | None = None
    ) -> int:
        """Stop the traces that match, and return how many.

        A key does not match an export, which a newer trace does not replace.
        """
        fits = [
            run
            for run in self._running
            if (key is None or (run.key == key and not run.options.standalone))
            and (path is None or run.key[0] == path)
            and (token is None or run.bar.token == token)
        ]
        for run in fits:
            run.stop()
        return len(fits)

    def restart(self) -> None:
        """End the worker; the next trace starts a new one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def forget(self, settings: Settings) -> None:
        """Drop all caches; the next trace starts a new worker."""
        self._client(settings).forget()
        self.restart()

    async def _answer(self, running: Running, settings: Settings) -> Answer:
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            running.heard_at = loop.time()
            running.bar.report(text)

        def on_progress(progress: StageProgress) -> None:
            loop.call_soon_threadsafe(report, str(phase_of(progress.stage, progress.detail)))

        worker = self._client(settings)
        silence_s = settings.time_limit_s + SILENCE_S + (0 if worker.hello else START_S)
        request = TraceRequest(
            *running.key[:2],
            argv=settings.args,
            options=running.options,
            time_limit_s=settings.time_limit_s,
            memory_limit_bytes=settings.memory_limit_bytes,
        )
        running.job = await loop.run_in_executor(None, worker.submit, request, on_progress)
        if running.stopped:
            running.job.cancel()
        return await self._wait(running, asyncio.wrap_future(running.job.future), silence_s)

    async def _wait(self, running: Running, future: asyncio.Future[Answer], silence_s: float) -> Answer:
        """Return the worker's answer; a worker that misses even its own time limit is ended."""
        loop = asyncio.get_running_loop()
        running.heard_at = loop.time()
        while not future.done():
            left = running.heard_at + silence_s - loop.time()
            if left <= 0 and not self._is_queued(running):
                break
            await asyncio.wait([future], timeout=max(left, 0.1))
        if future.done():
            return future.result()
        await loop.run_in_executor(None, self.restart)
        what = f"the tracing process did not respond for {limit_text(silence_s)} and was stopped: retrace"
        return Answer(0, None, Failure("internal", what, exit_code=3))

    def _is_queued(self, running: Running) -> bool:
        """Return True if it may be waiting for other traces, which have limits of their own."""
        return any(other.heard_at > running.heard_at for other in self._running)

    async def _hold(self, key: TraceKey, snapshot: Snapshot, answer: Answer) -> Answer:
        self._log_output(key, answer)
        if answer.failure is not None and answer.failure.kind == "cancelled":
            self._views.drop(snapshot)
            return answer
        if answer.report is not None:
            loop = asyncio.get_running_loop()
            read = partial(self._read, answer, key[0], snapshot.lines.traced)
            try:
                report, indices = await loop.run_in_executor(self._reader, read)
            except AotlensError as error:
                failure = Failure("internal", f"the worker's report cannot be read: {error}", exit_code=3)
                answer = replace(answer, report=None, failure=failure)
            else:
                self._views.hold(key, report, indices, snapshot)
        if answer.failure is not None:
            self._views.hold_failure(key, answer.failure, snapshot)
        return answer

    def _read(self, answer: Answer, path: str, lines: tuple[str, ...]) -> tuple[Report, dict[str, FileIndex]]:
        report = _without_failure(decode(answer.report), answer.failure)
        return report, self._views.prepare(report, path, lines)

    def _client(self, settings: Settings) -> WorkerClient:
        if self._worker is None or self._python != settings.python:
            self.restart()
            self._python = settings.python
            self._worker = self._factory(python=settings.python, cwd=self.cwd, on_log=None)
        return self._worker

    def _log_output(self, key: TraceKey, answer: Answer) -> None:
        if answer.output:
            self._log(f"output of {_shown(key)}:\n{answer.output[:LONGEST_LOG]}")

    def _log(self, message: str) -> None:
        params = types.LogMessageParams(type=types.MessageType.Log, message=message)
        self._server.window_log_message(params)


def _without_failure(report: Report, failure: Failure | None) -> Report:
    """Return the report without the failure's diagnostic: `FailedTrace` shows it, even without a line."""
    if failure is None:
        return report
    shown = from_failure(failure)
    others = tuple(diagnostic for diagnostic in report.diagnostics if diagnostic != shown)
    return replace(report, diagnostics=others)


def _shown(key: TraceKey) -> str:
    name = os.path.basename(key[0])
    return f"{name}::{key[1]}" if key[1] else name


def _outcome(answer: Answer | None) -> str:
    if answer is None or (answer.failure and answer.failure.kind == "cancelled"):
        return "cancelled"
    return "failed" if answer.failure else f"done in {human_ms(answer.elapsed_ms)}"
