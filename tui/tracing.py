"""Traces in the background: the worker's answers become messages.

Invariant: nothing here touches a widget, and no user code runs in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from textual.message import Message

from aotlens.errors import ReportError
from aotlens.model.failure import Failure
from aotlens.worker.protocol import Answer, Progress, TraceOptions, TraceRequest
from aotlens.worker.syntax_failure import syntax_failure
from tui.messages import EditsTried, SelectionWeighed, TargetsAnswered, TraceEnded, TraceProgress

if TYPE_CHECKING:  # the first paint comes before the report's records
    from aotlens.model.report import Report, Target

Post = Callable[[Message], object]
"""Safe to call from any thread, as `App.post_message` is."""

Texts = tuple[tuple[str, str], ...]
"""Edited files: path and text."""

AsMessage = Callable[[tuple["Target", ...], Failure | None], TargetsAnswered]
"""Makes the message of an answer."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of one trace, beside the command with which the user started the app."""

    what_if: tuple[str, ...] = ()
    """Changes of the policy."""
    verify: bool = False
    """Compare the compiled calls with eager."""

    def added_to(self, options: TraceOptions) -> TraceOptions:
        what_if = (*options.what_if, *self.what_if)
        return replace(options, what_if=what_if, verify=options.verify or self.verify)


NONE = Questions()


class Tracing(Protocol):
    """The app's interface to tracing; tests replace it."""

    def start(self, trace: int, post: Post, fresh: bool, questions: Questions = NONE) -> None: ...

    @property
    def gpu(self) -> str | None: ...

    def choose_gpu(self, name: str | None) -> None: ...

    def weigh(self, number: int, change: str, post: Post) -> None: ...

    def try_texts(self, number: int, texts: tuple[tuple[str, str], ...], post: Post) -> None: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class Job(Protocol):
    @property
    def future(self) -> Future[Answer]: ...

    def cancel(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """The target of a trace, and its options."""

    path: str
    qualname: str | None = None
    argv: tuple[str, ...] = ()
    options: TraceOptions = field(default_factory=TraceOptions)

    def __str__(self) -> str:
        return f"{self.path}::{self.qualname}" if self.qualname else self.path


class WorkerTracing:
    """Traces one target of one script through the worker; a new trace cancels the one before."""

    def __init__(self, asked: TraceTarget) -> None:
        # Imported here so that a saved report opens without starting anything of the worker's.
        from aotlens.worker.client import WorkerClient

        self._target = asked
        self._client = WorkerClient()
        self._known = self._client.answers_on_disk()
        self._job: Job | None = None
        self._question: Job | None = None
        """The running question about the selection, beside the trace."""

    @property
    def gpu(self) -> str | None:
        """Return the GPU whose kernels are shown; None for no kernels."""
        return self._target.options.gpu

    def choose_gpu(self, name: str | None) -> None:
        """Set the GPU of the next trace."""
        self._target = replace(self._target, options=replace(self._target.options, gpu=name))

    def weigh(self, number: int, change: str, post: Post) -> None:
        """Ask for the totals of a change, and cancel the question before; an empty change only cancels."""
        if not change:
            self._cancel_question()
            return
        options = replace(self._target.options, what_if=(change,), only_what_if=True)
        self._ask(options, (), partial(SelectionWeighed, number), post)

    def try_texts(self, number: int, texts: Texts, post: Post) -> None:
        """Trace with edited files, which stay as they are on disk."""
        options = replace(self._target.options, gpu=None)
        self._ask(options, texts, partial(EditsTried, number), post)

    def _cancel_question(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.cancel()

    def _ask(self, options: TraceOptions, texts: Texts, message: AsMessage, post: Post) -> None:
        self._cancel_question()
        asked = self._target
        request = TraceRequest(asked.path, asked.qualname, asked.argv, options, hold=not texts, texts=texts)
        job: Job = self._client.submit(request)
        self._question = job

        def finished(future: Future[Answer]) -> None:
            if self._question is job:
                self._question = None
                answer = ended(0, future)
                post(message(answer.report.targets if answer.report else (), answer.failure))

        job.future.add_done_callback(finished)

    def start(self, trace: int, post: Post, fresh: bool, questions: Questions = NONE) -> None:
        self.cancel()

        def progressed(progress: Progress) -> None:
            post(TraceProgress(trace, progress.stage, progress.detail))

        asked = self._target
        if (failure := syntax_failure(asked.path)) is not None:
            post(TraceEnded(trace, None, failure))
            return
        options = questions.added_to(asked.options)
        request = TraceRequest(asked.path, asked.qualname, asked.argv, options)
        known = self._known.find(request) if self._known is not None and not fresh else None
        if known is not None:  # `aotlens inspect`, or this app earlier, ran the same trace
            post(_ended(trace, replace(known, cached=True)))
            return
        started = time.time()
        asked_now = replace(request, fresh=fresh, list_reads=self._known is not None, hold=True)
        job: Job = self._client.submit(asked_now, progressed)
        self._job = job

        def finished(future: Future[Answer]) -> None:
            post(ended(trace, future))
            if self._known is not None and not future.cancelled() and future.exception() is None:
                self._known.add(request, future.result(), started)
            if self._job is job:  # its answer is the same report as JSON data
                self._job = None

        job.future.add_done_callback(finished)

    def cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._job = None

    def close(self) -> None:
        self.cancel()
        self._cancel_question()
        self._client.close()


def ended(trace: int, future: Future[Answer]) -> TraceEnded:
    """Return the message for a finished job; decodes the report here, off the UI's thread."""
    if future.cancelled():
        return TraceEnded(trace, None, Failure("cancelled", "the trace was cancelled"))
    error = future.exception()
    if error is not None:
        return TraceEnded(trace, None, Failure("internal", f"the worker failed: {error}", exit_code=3))
    return _ended(trace, future.result())


def _ended(trace: int, answer: Answer) -> TraceEnded:
    report, failure = read_report(answer)
    elapsed_ms = None if answer.cached else answer.elapsed_ms
    return TraceEnded(trace, report, failure, answer.output, elapsed_ms)


def read_report(answer: Answer) -> tuple[Report | None, Failure | None]:
    if answer.report is None:
        return None, answer.failure or Failure(
            "internal", "the worker sent neither a report nor an error", exit_code=3
        )
    from aotlens.model.codec import decode  # with all records

    try:
        return decode(answer.report), answer.failure
    except ReportError as error:
        return None, Failure("internal", f"the worker's report cannot be read: {error}", exit_code=3)
