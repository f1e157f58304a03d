"""The steps of every child of a worker: its streams, its progress, its outcome, its end."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from aotlens.model.failure import Failure
from aotlens.worker.codec import Outcome, encode
from aotlens.worker.protocol import Progress, TraceRequest
from aotlens.worker.requests import Trace

__all__ = ["exit_after", "prefer_to_be_killed", "use_standard_streams", "write_all", "write_outcome"]


def exit_after(work: Callable[[], None]) -> NoReturn:
    """Do the work, then end the process, with exit code 1 if it raised."""
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 (nothing is left to tell it to: stderr is part of the answer)
        traceback.print_exc()
    finally:
        os._exit(status)


def write_outcome(request: TraceRequest, trace: Trace, result_fd: int) -> None:
    """Trace, and write the progress and the outcome to the descriptor."""
    outcome = _outcome_of(request, trace, result_fd)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        line = encode(outcome)
    except (TypeError, ValueError) as error:  # a fact that is no plain data
        line = encode(_own_failure(request, error))
    write_all(result_fd, line)


def _outcome_of(request: TraceRequest, trace: Trace, result_fd: int) -> Outcome:
    """Trace and return the outcome; progress goes to the descriptor."""

    def progress(stage: str, detail: str = "") -> None:
        write_all(result_fd, encode(Progress(request.id, stage, detail)))

    try:
        return trace(request, progress)
    except BaseException as error:  # noqa: BLE001 (every request gets an answer, whatever our fault is)
        return _own_failure(request, error)


def _own_failure(request: TraceRequest, error: BaseException) -> Outcome:
    message = f"aotlens failed while tracing {request.path}: {type(error).__name__}: {error}"
    failure = Failure("internal", message, traceback.format_exc(), file=request.path, exit_code=3)
    return Outcome(None, failure)


def use_standard_streams() -> None:
    """Open descriptors 0 to 2 again as a script expects them, line-buffered so that no output is lost."""
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115 (lives as long as the process)
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115 (same)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (same)


def prefer_to_be_killed() -> None:
    """Make the kernel kill the trace, not the user's editor, when memory runs out."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:  # not Linux, or not allowed: the server still watches the memory
        return


def write_all(fd: int, data: bytes) -> None:
    """Write everything, however small the pipe."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
