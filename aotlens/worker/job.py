"""One running trace in the server: its child, its pipes, its limits, and why it was stopped.

Invariant: `answer` makes exactly one answer, however the child ended.
"""

import os
import signal
import socket
import time
from dataclasses import dataclass, field
from enum import Enum

from aotlens.model.failure import Failure
from aotlens.worker.captured_output import HeadAndTail
from aotlens.worker.codec import Outcome
from aotlens.worker.protocol import Answer, TraceRequest
from aotlens.worker.stacks import Frame, traceback_text, user_frames

__all__ = ["Job", "Pipe", "Stopped", "WriteEnds", "cancelled", "open_pipes"]

WINDOWS_FAULT = 0xC0000000
"""Exit codes from here on are faults for which Windows ended the process."""


class Stopped(Enum):
    """Why the server ended a child."""

    TIMEOUT = "timeout"
    MEMORY = "memory"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Pipe:
    """The read end of one of the child's pipes."""

    fd: int
    data: HeadAndTail | bytearray


@dataclass(frozen=True, slots=True)
class WriteEnds:
    """The write ends of the child's pipes."""

    result: int
    output: int
    dump: int

    def close(self) -> None:
        for fd in (self.result, self.output, self.dump):
            os.close(fd)


@dataclass(slots=True)
class Job:
    """The state of a running trace; the loop updates it."""

    request: TraceRequest
    pid: int
    result: Pipe
    output: Pipe
    dump: Pipe
    memory_limit_bytes: int
    control: socket.socket | None = None
    """The socket for the process that the child may leave behind for further questions."""
    started: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    outcome: Outcome | None = None
    stopped: Stopped | None = None
    peak_bytes: int = 0
    kill_at: float | None = None
    """When the child is killed, on the monotonic clock; None while it may run."""

    @property
    def deadline(self) -> float:
        """Return the next moment at which the loop must look at this job."""
        return self.kill_at if self.kill_at is not None else self.began + self.request.time_limit_s

    @property
    def pipes(self) -> tuple[Pipe, Pipe, Pipe]:
        return self.result, self.output, self.dump

    def answer(self, exit_code: int) -> Answer:
        """Return the answer, from the exit code of the process, negative for a signal."""
        outcome = self.outcome or Outcome(None, self._failure(exit_code))
        return Answer(
            id=self.request.id,
            report=outcome.report,
            failure=outcome.failure,
            output=_text(self.output),
            elapsed_ms=(time.monotonic() - self.began) * 1000.0,
            files=outcome.files,
            outside=outcome.outside,
            stopped=outcome.stopped,
        )

    def _failure(self, exit_code: int) -> Failure:
        frames = user_frames(_text(self.dump), self.request.path)
        match self.stopped:
            case Stopped.CANCELLED:
                return cancelled(self.request)
            case Stopped.TIMEOUT:
                return self._stopped_failure(
                    "timeout", f"ran longer than {self.request.time_limit_s:g} s", frames
                )
            case Stopped.MEMORY:
                used = f"used {_mib(self.peak_bytes)}, more than the limit of {_mib(self.memory_limit_bytes)}"
                return self._stopped_failure("memory", used, frames)
        if exit_code < 0:
            return self._crash(_signal_name(-exit_code), frames)
        if exit_code >= WINDOWS_FAULT:
            return self._crash(f"fault {exit_code:#x}", frames)
        return self._silent_exit(exit_code)

    def _stopped_failure(self, kind: str, what: str, frames: tuple[Frame, ...]) -> Failure:
        where = f"; it was at {frames[0]}" if frames else ""
        message = f"{self.request.path} {what} and was stopped{where}"
        return self._with_frames(kind, message, frames)

    def _crash(self, cause: str, frames: tuple[Frame, ...]) -> Failure:
        where = f" at {frames[0]}" if frames else ""
        message = f"{self.request.path} crashed{where}: killed by {cause}"
        if cause == "SIGKILL":
            message += ", most likely because the machine ran out of memory"
        return self._with_frames("crash", message, frames)

    def _silent_exit(self, code: int) -> Failure:
        message = (
            f"{self.request.path} ended its process with exit code {code} (os._exit, or a native library's"
            " exit), so what was traced until then is lost; remove that call or trace one function with"
            f" {self.request.path}::NAME"
        )
        return self._with_frames("exit", message, ())

    def _with_frames(self, kind: str, message: str, frames: tuple[Frame, ...]) -> Failure:
        file, line = (frames[0].file, frames[0].line) if frames else (self.request.path, None)
        return Failure(kind, message, traceback_text(frames), file, line)  # type: ignore[arg-type]


def cancelled(request: TraceRequest) -> Failure:
    return Failure("cancelled", f"the trace of {request.path} was cancelled", file=request.path)


def open_pipes() -> tuple[tuple[Pipe, Pipe, Pipe], WriteEnds]:
    """Return the three pipes of a child: read ends for the server, write ends for the child."""
    ends = [os.pipe() for _ in range(3)]
    for reading, _ in ends:
        os.set_blocking(reading, False)
    (result, result_in), (output, output_in), (dump, dump_in) = ends
    readers = Pipe(result, bytearray()), Pipe(output, HeadAndTail()), Pipe(dump, HeadAndTail())
    return readers, WriteEnds(result_in, output_in, dump_in)


def _text(pipe: Pipe) -> str:
    return pipe.data.text() if isinstance(pipe.data, HeadAndTail) else pipe.data.decode("utf-8", "replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.0f} MiB"
