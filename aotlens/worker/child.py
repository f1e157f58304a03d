"""The child's side of a trace: from the fork to the one outcome line.

Invariant: the process exits through `exit_after`, whatever the user's code does; it never returns into the
server's loop.
"""

import faulthandler
import os
import resource
import signal
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from aotlens.process import die_with_parent, show_logs
from aotlens.worker.held import leave_held
from aotlens.worker.job import WriteEnds
from aotlens.worker.outcome import exit_after, prefer_to_be_killed, use_standard_streams, write_outcome
from aotlens.worker.protocol import TraceRequest
from aotlens.worker.requests import QuestionTrace, Trace

__all__ = ["DUMP_SIGNAL", "Work", "answer", "run"]

DUMP_SIGNAL = signal.SIGUSR1
"""Makes the child write its stack before it is killed."""
_POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class Work:
    """The child's request, and how it is done."""

    request: TraceRequest
    trace: Trace
    question_trace: QuestionTrace
    control: socket.socket | None = None
    """The child's end of the socket for further questions; None if nothing is to be held."""


def run(work: Work, pipes: WriteEnds, parent_pid: int) -> NoReturn:
    """Trace, write the outcome, leave a held process if the request wants one, and exit."""
    exit_after(partial(_trace, work, pipes, parent_pid))


def _trace(work: Work, pipes: WriteEnds, parent_pid: int) -> None:
    _settle(pipes, parent_pid)
    write_outcome(work.request, work.trace, pipes.result)
    question_trace = work.question_trace() if work.control is not None else None
    if work.control is not None and question_trace is not None:
        leave_held(work.control, pipes, partial(answer, trace=question_trace), parent_pid)


def answer(request: TraceRequest, pipes: WriteEnds, server_pid: int, trace: Trace) -> NoReturn:
    """Answer a question in a fork of a held process, and exit."""
    exit_after(partial(_answer, request, pipes, server_pid, trace))


def _answer(request: TraceRequest, pipes: WriteEnds, server_pid: int, trace: Trace) -> None:
    os.setsid()
    while os.getppid() != server_pid:  # until the intermediate process of the fork has ended
        time.sleep(_POLL_S)
    die_with_parent(server_pid)
    _use_pipes(pipes)
    write_outcome(request, trace, pipes.result)


def _settle(pipes: WriteEnds, parent_pid: int) -> None:
    """Set up the process like that of an ordinary script, in its own group."""
    os.setsid()
    die_with_parent(parent_pid)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _use_pipes(pipes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    show_logs()
    prefer_to_be_killed()


def _use_pipes(pipes: WriteEnds) -> None:
    """Write output and, where it has to be stopped, the stack to the server's pipes."""
    os.dup2(pipes.output, 1)
    os.dup2(pipes.output, 2)
    os.close(pipes.output)
    use_standard_streams()
    faulthandler.enable(pipes.dump, all_threads=False)
    faulthandler.register(DUMP_SIGNAL, pipes.dump, all_threads=False)
