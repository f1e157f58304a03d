"""Waiting, running and cached requests: the part of a server that is independent of how traces start.

Invariant: every request gets exactly one answer, and at most `parallel` traces run at a time.
"""

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable

from aotlens.worker.answers import AnswerCache
from aotlens.worker.codec import Message, Outcome, ProtocolError, decode, encode
from aotlens.worker.job import Job, Stopped, cancelled
from aotlens.worker.protocol import Answer, Cancel, Progress, TraceRequest

__all__ = [
    "PARALLEL",
    "ProgressFunction",
    "QuestionTrace",
    "Requests",
    "Trace",
    "decode_or_report",
    "take_lines",
]

ProgressFunction = Callable[[str, str], None]
"""Takes a stage and a detail."""

Trace = Callable[[TraceRequest, ProgressFunction], Outcome]
"""The child's work; it may raise, exit or crash."""

QuestionTrace = Callable[[], Trace | None]
"""Called after a trace: returns the function that answers further questions about it in forks of the process;
None if none can be answered.
"""

PARALLEL = 2
"""The number of simultaneous traces if the client does not set it."""


class Requests(ABC):
    """The client's requests; a subclass starts, watches and ends their processes."""

    def __init__(self, writing: int, parallel: int) -> None:
        self._writing = writing
        self._parallel = parallel
        self._waiting: deque[TraceRequest] = deque()
        self._jobs: dict[int, Job] = {}
        """Running jobs by their child's pid."""
        self._cache = AnswerCache()

    @abstractmethod
    def _start(self, request: TraceRequest) -> None:
        """Start the trace's process and add its job."""

    @abstractmethod
    def _kill(self, job: Job) -> None:
        """End the job's process and what it started; `_finish` follows when it has ended."""

    def send(self, message: Message) -> None:
        view = memoryview(encode(message))
        while view:
            view = view[os.write(self._writing, view) :]

    def _handle_lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            match message := decode_or_report(line):
                case TraceRequest():
                    self._accept(message)
                case Cancel(id=identifier):
                    self._cancel(identifier)

    def _accept(self, request: TraceRequest) -> None:
        known = self._cache.find(request)
        if known is not None:
            self.send(known)
            return
        self._waiting.append(request)
        if len(self._jobs) >= self._parallel:
            self.send(Progress(request.id, "queued"))

    def _cancel(self, identifier: int) -> None:
        for request in self._waiting:
            if request.id == identifier:
                self._waiting.remove(request)
                self.send(Answer(identifier, None, cancelled(request)))
                return
        for job in self._jobs.values():
            if job.request.id == identifier:
                job.stopped = Stopped.CANCELLED
                job.outcome = None
                self._kill(job)

    def _start_waiting(self) -> None:
        while self._waiting and len(self._jobs) < self._parallel:
            self._start(self._waiting.popleft())

    def _receive(self, job: Job, message: Message) -> None:
        """Pass on a child's progress or store its outcome; ignored once the child is being stopped."""
        if job.stopped is not None:
            return
        if isinstance(message, Progress):
            self.send(message)
        elif isinstance(message, Outcome):
            job.outcome = message

    def _finish(self, job: Job, exit_code: int) -> None:
        """Answer for a child that has ended; the code is negative for a signal."""
        del self._jobs[job.pid]
        answer = job.answer(exit_code)
        self.send(answer)
        if job.outcome is not None:
            self._cache.add(job.request, answer, job.outcome.files, job.started)


def decode_or_report(line: bytes) -> Message | None:
    """Return the message of a line; None, with a line on stderr, if it is no message."""
    try:
        return decode(line)
    except ProtocolError as error:
        os.write(2, f"aotlens worker: ignored a line: {error}\n".encode())
        return None


def take_lines(buffer: bytearray) -> list[bytes]:
    """Remove and return the complete lines of the buffer."""
    end = buffer.rfind(b"\n") + 1
    lines = bytes(buffer[:end]).splitlines()
    del buffer[:end]
    return lines
