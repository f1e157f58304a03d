"""Work in a copy of this process, which has all its state and changes none of it.

Without a way to copy a process, as on Windows or with CUDA in use, the work is done in this one.
"""

import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["ForkError", "in_fork"]

Answer = TypeVar("Answer")


class ForkError(Exception):
    """The work raised an error or took too long."""


def in_fork(work: Callable[[], Answer], seconds: float) -> Answer:
    """Return the result of the work in a copy of this process; raises ForkError for an error or no answer."""
    if not hasattr(os, "fork") or torch.cuda.is_initialized():
        try:
            return work()
        except Exception as error:
            raise ForkError(_one_line(error)) from error
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's threads are not copied; the copy uses one
        process = os.fork()
    if process == 0:
        _answer(work, reading, writing)
    os.close(writing)
    data = _read(reading, process, time.monotonic() + seconds)
    if not data:
        raise ForkError("the process ended without an answer")
    answer, failure = pickle.loads(data)
    if failure:
        raise ForkError(failure)
    outcome: Answer = answer
    return outcome


def _answer(work: Callable[[], Any], reading: int, writing: int) -> None:
    """In the fork: do the work, write the answer, and exit without running code of the script."""
    try:
        os.close(reading)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        torch.set_num_threads(1)  # the pool's threads are not copied
        try:
            data = pickle.dumps((work(), ""))
        except BaseException as error:  # noqa: BLE001 (the user's function may raise anything)
            data = pickle.dumps((None, _one_line(error)))
        with os.fdopen(writing, "wb") as stream:
            stream.write(data)
    finally:
        os._exit(0)


def _read(reading: int, process: int, deadline: float) -> bytes:
    chunks: list[bytes] = []
    try:
        while True:
            ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(process, signal.SIGKILL)
                raise ForkError("it takes too long")
            chunk = os.read(reading, 1 << 16)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
    finally:
        os.close(reading)
        os.waitpid(process, 0)


def _one_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
