"""Work in forked children: what it changes, crashes or takes too long over stays there.

Invariant: every child is waited for, and ends with its parent; a child's end without an answer is an answer.
"""

import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Generic, TypeVar

from aotlens.errors import AotlensError
from aotlens.process import die_with_parent, kill_group

T = TypeVar("T")
OPERANDS = "\n  args["
"""How Inductor begins to list what an operator was given that it cannot lower."""


@dataclass(frozen=True, slots=True)
class ChildFailure:
    """A child that gave no result, or none further."""

    message: str
    """What the work raised, or how its process ended."""
    too_slow: bool = False
    """Whether it was stopped at its time limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Job(Generic[T]):
    name: str
    work: Callable[[], Iterable[T]]
    """Gives its results one by one; each reaches the parent while the next is made."""
    limit_s: float
    """For all of them."""


@dataclass(slots=True)
class _Running:
    """Mutable: its answers come later."""

    job: Job[Any]
    pid: int
    answers: Connection
    deadline: float


def run_in_children(jobs: deque[Job[T]], at_once: int) -> Iterator[tuple[Job[T], T | ChildFailure]]:
    """Each result with its job, as they come; at most so many jobs run at once, in the order of the queue.

    Whoever reads the results may put further jobs into the queue.
    """
    running: dict[Connection, _Running] = {}
    try:
        while jobs or running:
            while jobs and len(running) < at_once:
                started = _start(jobs.popleft())
                running[started.answers] = started
            yield from _next_results(running)
    finally:
        for child in running.values():
            _stop(child)


def _start(job: Job[Any]) -> _Running:
    reading, writing = Pipe(duplex=False)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        reading.close()
        _work(job, writing, parent)
    writing.close()
    return _Running(job, pid, reading, time.monotonic() + job.limit_s)


def _work(job: Job[Any], answers: Connection, parent: int) -> None:
    """The child's whole life."""
    status = 1
    try:
        os.setpgid(0, 0)
        die_with_parent(parent)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        warnings.simplefilter("ignore")  # a library's advice is no user's, and no error where -W says so
        try:
            for result in job.work():
                answers.send_bytes(pickle.dumps([result]))
        except Exception as error:  # noqa: BLE001 (the parent is told of every failure)
            answers.send_bytes(pickle.dumps([ChildFailure(_failure_message(error))]))
        answers.send_bytes(pickle.dumps([]))  # the end
        status = 0
    finally:
        os._exit(status)


def _failure_message(error: Exception) -> str:
    """Messages of ours tell all; others are told with their type, Inductor's without what an operator was
    given, which fills pages."""
    if isinstance(error, AotlensError):
        return str(error)
    return f"{type(error).__name__}: {str(error).partition(OPERANDS)[0] or traceback.format_exc()}"


def _next_results(running: dict[Connection, _Running]) -> Iterator[tuple[Job[Any], Any]]:
    """What has come, after waiting for something to."""
    now = time.monotonic()
    first = min(child.deadline for child in running.values())
    ready: list[Any] = wait(list(running), max(0.0, first - now))
    for answers in ready:
        child = running[answers]
        results = _receive(child)
        if not results or isinstance(results[0], ChildFailure):  # the last that it says
            del running[answers]
            _stop(child)
        yield from ((child.job, result) for result in results)
    for child in [child for child in running.values() if child.deadline <= time.monotonic()]:
        del running[child.answers]
        _stop(child)
        limit = f"its time limit of {child.job.limit_s:g} s"
        yield (
            child.job,
            ChildFailure(f"{child.job.name} took longer than {limit}, and was stopped", too_slow=True),
        )


def _receive(child: _Running) -> list[Any]:
    """One result, or none at the end."""
    try:
        received: list[Any] = pickle.loads(child.answers.recv_bytes())
    except EOFError:
        return [ChildFailure(f"{child.job.name} ended its process: {_exit_reason(child.pid)}")]
    return received


def _exit_reason(pid: int) -> str:
    """How a child ended; it is still to be waited for."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None  # without WNOHANG it waits
    exited = ended.si_code == os.CLD_EXITED
    return f"exit code {ended.si_status}" if exited else signal.Signals(ended.si_status).name


def _stop(child: _Running) -> None:
    """Whatever it started ends with it."""
    kill_group(child.pid)
    child.answers.close()
    os.waitpid(child.pid, 0)
