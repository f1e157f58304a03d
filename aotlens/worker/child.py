"""The child side of a trace: from the fork to the one outcome line.

Invariant: the process leaves through `os._exit` here, whatever the user's code does; it never returns
into the server's loop.
"""

import faulthandler
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from aotlens.logs import show_logs
from aotlens.worker.codec import Outcome, encode
from aotlens.worker.process import die_with_parent
from aotlens.worker.protocol import Failure, Progress, TraceRequest

__all__ = ["DUMP_SIGNAL", "ProgressFunction", "Trace", "Writing", "run"]

ProgressFunction = Callable[[str, str], None]
"""Takes a stage and a detail."""

Trace = Callable[[TraceRequest, ProgressFunction], Outcome]
"""What the child does; it may raise, exit or crash."""

DUMP_SIGNAL = signal.SIGUSR1
"""Asks the child to write its stack before it is killed."""


@dataclass(frozen=True, slots=True)
class Writing:
    """The write ends of the child's pipes."""

    result: int
    output: int
    dump: int

    def close(self) -> None:
        for fd in (self.result, self.output, self.dump):
            os.close(fd)


def run(request: TraceRequest, trace: Trace, pipes: Writing, parent_pid: int) -> NoReturn:
    """Trace, say how it ended, and leave."""
    status = 1
    try:
        _settle(pipes, parent_pid)
        outcome = _outcome(request, trace, pipes.result)
        sys.stdout.flush()
        sys.stderr.flush()
        _write(pipes.result, encode(outcome))
        status = 0
    except BaseException:  # noqa: BLE001 (nothing is left to tell it to: stderr is part of the answer)
        traceback.print_exc()
    finally:
        os._exit(status)


def _outcome(request: TraceRequest, trace: Trace, result_fd: int) -> Outcome:
    def progress(stage: str, detail: str = "") -> None:
        _write(result_fd, encode(Progress(request.id, stage, detail)))

    try:
        return trace(request, progress)
    except Exception as error:  # noqa: BLE001 (every request gets an answer, whatever our fault is)
        message = f"aotlens failed while tracing {request.path}: {type(error).__name__}: {error}"
        failure = Failure("internal", message, traceback.format_exc(), file=request.path, exit_code=3)
        return Outcome(None, failure)


def _settle(pipes: Writing, parent_pid: int) -> None:
    """Become an ordinary script's process, in a group of its own."""
    os.setsid()
    die_with_parent(parent_pid)
    os.close(signal.set_wakeup_fd(-1))
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(pipes.output, 1)
    os.dup2(pipes.output, 2)
    os.close(pipes.output)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115 (lives as long as the process)
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115 (same)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (same)
    faulthandler.enable(pipes.dump, all_threads=False)
    faulthandler.register(DUMP_SIGNAL, pipes.dump, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    show_logs()
    _prefer_to_be_killed()


def _prefer_to_be_killed() -> None:
    """When the machine runs out of memory, the kernel shall take the trace and not the user's editor."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:  # not Linux, or not allowed: the server's own memory watch remains
        return


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
