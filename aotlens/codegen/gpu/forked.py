"""Work in forked children: what it changes, crashes or takes too long over stays there.

Invariant: every child is waited for, and ends with its parent; a child's end without an answer is an answer.
"""

import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Generic, TypeVar

from aotlens.worker.process import die_with_parent, kill_group

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failed:
    """A child that gave no result."""

    message: str
    """What the work raised, or how its process ended."""


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    name: str
    work: Callable[[], T]


@dataclass(slots=True)
class _Running:
    """Mutable: its answer comes later."""

    position: int
    name: str
    pid: int
    answers: Connection
    deadline: float


def in_children(jobs: Iterable[Job[T]], at_once: int, limit_s: float) -> Iterator[tuple[int, T | Failed]]:
    """Each job's position with its result, as they end; at most so many run at once, each so long."""
    waiting = list(enumerate(jobs))[::-1]
    running: dict[Connection, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                started = _start(*waiting.pop(), limit_s)
                running[started.answers] = started
            yield from _ended(running)
    finally:
        for child in running.values():
            _end(child)


def _start(position: int, job: Job[Any], limit_s: float) -> _Running:
    reading, writing = Pipe(duplex=False)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        reading.close()
        _work(job, writing, parent)
    writing.close()
    return _Running(position, job.name, pid, reading, time.monotonic() + limit_s)


def _work(job: Job[Any], answers: Connection, parent: int) -> None:
    """The child's whole life."""
    status = 1
    try:
        os.setpgid(0, 0)
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        answers.send_bytes(_answer(job))
        status = 0
    finally:
        os._exit(status)


def _answer(job: Job[Any]) -> bytes:
    try:
        return pickle.dumps(job.work())
    except Exception as error:  # noqa: BLE001 (the parent is told of every failure)
        text = str(error) or traceback.format_exc()
        return pickle.dumps(Failed(f"{type(error).__name__}: {text}"))


def _ended(running: dict[Connection, _Running]) -> Iterator[tuple[int, Any]]:
    """What has ended, after waiting for something to."""
    now = time.monotonic()
    first = min(child.deadline for child in running.values())
    ready: list[Any] = wait(list(running), max(0.0, first - now))
    for answers in ready:
        child = running.pop(answers)
        yield child.position, _result(child)
    for child in [child for child in running.values() if child.deadline <= time.monotonic()]:
        del running[child.answers]
        _end(child)
        yield child.position, Failed(f"{child.name} took longer than its time limit, and was stopped")


def _result(child: _Running) -> Any:
    try:
        result = pickle.loads(child.answers.recv_bytes())
    except EOFError:
        _, status = os.waitpid(child.pid, 0)
        child.answers.close()
        return Failed(f"{child.name} ended its process: {_how(status)}")
    child.answers.close()
    os.waitpid(child.pid, 0)
    return result


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _end(child: _Running) -> None:
    kill_group(child.pid)
    child.answers.close()
    os.waitpid(child.pid, 0)
