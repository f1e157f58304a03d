"""Work in children: results, errors, crashes and limits come back as values, and no child stays."""

import os
import signal
import time
from functools import partial
from typing import Any

from aotlens.codegen.gpu.forked import Failed, Job, in_children


def _crash() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _wait() -> int:
    time.sleep(60)
    return 0


def test_results_come_back_in_any_order() -> None:
    jobs: list[Job[Any]] = [Job(f"square of {number}", partial(pow, number, 2)) for number in range(5)]
    assert dict(in_children(jobs, at_once=2, limit_s=30)) == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}


def test_what_fails_leaves_the_others() -> None:
    jobs: list[Job[Any]] = [
        Job("division", lambda: 1 // 0),
        Job("crash", _crash),
        Job("sleep", _wait),
        Job("two", lambda: 2),
    ]
    found = dict(in_children(jobs, at_once=4, limit_s=2))
    assert found == {
        0: Failed("ZeroDivisionError: integer division or modulo by zero"),
        1: Failed("crash ended its process: SIGKILL"),
        2: Failed("sleep took longer than its time limit, and was stopped"),
        3: 2,
    }


def test_children_end_when_nobody_asks_further() -> None:
    answers = in_children([Job("one", lambda: 1), Job("sleep", _wait)], at_once=2, limit_s=60)
    assert next(answers) == (0, 1)
    answers.close()  # type: ignore[attr-defined]  # a generator
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return
    raise AssertionError("a child is left")
