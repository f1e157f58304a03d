"""Work in forked children, so that its changes, crashes and timeouts do not affect this process.

Invariant: every child is waited for, and ends with its parent; a child that ends without an answer counts as
a failure.
"""

import gc
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
"""How Inductor begins the list of operands of an operator that it cannot lower."""


@dataclass(frozen=True, slots=True)
class ChildFailure:
    """A child that gave no result, or no further one."""

    message: str
    """The error that the work raised, or how its process ended."""
    too_slow: bool = False
    """Whether it was stopped at its time limit."""


@dataclass(frozen=True, slots=True, eq=False)
class ChildJob(Generic[T]):
    """Work for one child process."""

    name: str
    work: Callable[[], Iterable[T]]
    """Yields results one by one; each reaches the parent while the next is computed."""
    limit_s: float
    """The time limit for all results."""


@dataclass(slots=True)
class _Running:
    """A running child; mutable, since answers arrive over time."""

    job: ChildJob[Any]
    pid: int
    answers: Connection
    deadline: float


def run_in_children(jobs: deque[ChildJob[T]], at_once: int) -> Iterator[tuple[ChildJob[T], T | ChildFailure]]:
    """Yield each result with its job as it arrives; at most `at_once` jobs run at a time, in queue order.

    The caller may add jobs to the queue while it reads results.
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


def _start(job: ChildJob[Any]) -> _Running:
    """Fork a child that does the job and sends its result through a pipe."""
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


def _work(job: ChildJob[Any], answers: Connection, parent: int) -> None:
    """Run the child from start to exit."""
    status = 1
    try:
        os.setpgid(0, 0)
        die_with_parent(parent)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        warnings.simplefilter("ignore")  # library warnings are not for the user, nor errors under -W
        gc.freeze()  # releasing the parent's objects on a GPU would abort the process, which has no context
        try:
            for result in job.work():
                answers.send_bytes(pickle.dumps([result]))
        except Exception as error:  # noqa: BLE001 (the parent gets every failure)
            answers.send_bytes(pickle.dumps([ChildFailure(_failure_message(error))]))
        answers.send_bytes(pickle.dumps([]))  # the end
        status = 0
    finally:
        os._exit(status)


def _failure_message(error: Exception) -> str:
    """Return our own errors' messages unchanged; others with their type, and Inductor's without the operands,
    which fill pages."""
    if isinstance(error, AotlensError):
        return str(error)
    return f"{type(error).__name__}: {str(error).partition(OPERANDS)[0] or traceback.format_exc()}"


def _next_results(running: dict[Connection, _Running]) -> Iterator[tuple[ChildJob[Any], Any]]:
    """Wait for results, and yield those that have arrived."""
    now = time.monotonic()
    first = min(child.deadline for child in running.values())
    ready: list[Any] = wait(list(running), max(0.0, first - now))
    for answers in ready:
        child = running[answers]
        results = _receive(child)
        if not results or isinstance(results[0], ChildFailure):  # the last answer
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
    """Return one result, or none at the end."""
    try:
        received: list[Any] = pickle.loads(child.answers.recv_bytes())
    except EOFError:
        return [ChildFailure(f"{child.job.name} ended its process: {_exit_reason(child.pid)}")]
    return received


def _exit_reason(pid: int) -> str:
    """Return how a child ended, without reaping it."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None  # never None without WNOHANG
    exited = ended.si_code == os.CLD_EXITED
    return f"exit code {ended.si_status}" if exited else signal.Signals(ended.si_status).name


def _stop(child: _Running) -> None:
    """Kill the child and every process that it started."""
    kill_group(child.pid)
    child.answers.close()
    os.waitpid(child.pid, 0)
