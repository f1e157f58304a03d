"""Trace many files at the same time.

Invariant: every file gets its answers, whatever happens to the others.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass

from aotlens.check.files import SourceFile
from aotlens.model.codec import decode
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.worker.answers import AnswerStore, open_answer_store
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import Answer, TraceRequest

__all__ = ["OnDone", "Traced", "trace_files"]

OnDone = Callable[[SourceFile], None]

_ENDED = ("crash", "timeout", "memory")
"""Failures that lose the earlier traces of the file: each target is then traced by itself."""


@dataclass(frozen=True, slots=True)
class Traced:
    """The result of tracing one file or target; both report and failure if a part could be traced."""

    file: SourceFile
    report: Report | None
    failure: Failure | None
    output: str = ""
    """What the user's code printed."""


def trace_files(files: Sequence[SourceFile], jobs: int, fresh: bool, on_done: OnDone) -> tuple[Traced, ...]:
    """Trace every file's examples, `jobs` at a time; `on_done` is called for each finished file.

    Unless `fresh`, a stored answer is used if nothing that it depends on has changed.
    """
    store = open_answer_store()
    traces: dict[str, list[Traced]] = {}
    waiting: list[tuple[SourceFile, TraceRequest]] = []
    for file in files:
        request = _request(file, None, store is not None)
        answer = store.find(request) if store is not None and not fresh and file.failure is None else None
        if file.failure is not None:
            traces[file.path] = [Traced(file, None, file.failure)]
        elif answer is not None:
            traces[file.path] = [_traced(file, answer)]
        else:
            waiting.append((file, request))
            continue
        on_done(file)
    if waiting:
        with WorkerClient(parallel=min(jobs, len(waiting))) as client:
            _Run(client, store, traces, on_done).trace(waiting)
    return tuple(traced for file in files for traced in traces[file.path])


def _request(file: SourceFile, qualname: str | None, list_reads: bool) -> TraceRequest:
    settings = file.settings
    return TraceRequest(
        file.path, qualname, file.argv, settings.options, settings.time_limit_s, list_reads=list_reads
    )


def _traced(file: SourceFile, answer: Answer) -> Traced:
    report = decode(answer.report) if answer.report is not None else None
    return Traced(file, report, answer.failure, answer.output)


class _Run:
    """The files that the worker traces; fills `traces`."""

    def __init__(
        self,
        client: WorkerClient,
        store: AnswerStore | None,
        traces: dict[str, list[Traced]],
        on_done: OnDone,
    ) -> None:
        self._client = client
        self._store = store
        self._traces = traces
        self._on_done = on_done

    def trace(self, waiting: Sequence[tuple[SourceFile, TraceRequest]]) -> None:
        started = time.time()
        jobs = {self._client.submit(request).future: (file, request) for file, request in waiting}
        for future in as_completed(jobs):
            file, request = jobs[future]
            answer: Answer = future.result()
            if self._store is not None:
                self._store.add(request, answer, started)
            if answer.failure is not None and answer.failure.kind in _ENDED and len(file.targets) > 1:
                self._traces[file.path] = self._one_by_one(file)
            else:
                self._traces[file.path] = [_traced(file, answer)]
            self._on_done(file)

    def _one_by_one(self, file: SourceFile) -> list[Traced]:
        jobs = [self._client.submit(_request(file, target.qualname, False)) for target in file.targets]
        return [_traced(file, job.future.result()) for job in jobs]
