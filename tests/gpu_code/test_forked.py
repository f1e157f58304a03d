"""Work in children: results, errors, crashes and limits come back as values, and no child stays."""

import gc
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aotlens.codegen.gpu.child_processes import ChildFailure, ChildJob, run_in_children


def _crash() -> list[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def _powers(number: int) -> list[int]:
    return [number**2, number**3]


def _wait() -> list[int]:
    time.sleep(60)
    return []


def _some_then_crash() -> Iterator[int]:
    yield 1
    os._exit(3)


def _job(name: str, work: Callable[[], Iterable[Any]], limit_s: float = 30.0) -> ChildJob[Any]:
    return ChildJob(name, work, limit_s)


def _all(*jobs: ChildJob[Any], at_once: int) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {job.name: [] for job in jobs}
    for job, result in run_in_children(deque(jobs), at_once):
        found[job.name].append(result)
    return found


def test_results_come_back_in_any_order() -> None:
    jobs = [_job(f"{number}", partial(_powers, number)) for number in range(5)]
    assert _all(*jobs, at_once=2) == {f"{number}": [number**2, number**3] for number in range(5)}


@pytest.mark.rotates
def test_what_fails_leaves_the_others() -> None:
    found = _all(
        _job("division", lambda: [1 // 0]),
        _job("crash", _crash),
        _job("half", _some_then_crash),
        _job("sleep", _wait, limit_s=2),
        _job("two", lambda: [2]),
        at_once=5,
    )
    assert found == {
        "division": [ChildFailure("ZeroDivisionError: integer division or modulo by zero")],
        "crash": [ChildFailure("crash ended its process: SIGKILL")],
        "half": [1, ChildFailure("half ended its process: exit code 3")],
        "sleep": [
            ChildFailure("sleep took longer than its time limit of 2 s, and was stopped", too_slow=True)
        ],
        "two": [2],
    }


class _Cyclic:
    """Garbage that only a collection finds; on a GPU its release would end a forked process."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        _RELEASED_BY.append(os.getpid())


_RELEASED_BY: list[int] = []


def _collect() -> list[list[int]]:
    gc.collect()
    return [[*_RELEASED_BY]]


@pytest.mark.rotates
def test_a_child_releases_nothing_of_its_parent() -> None:
    gc.collect()
    gc.disable()
    try:
        _Cyclic()
        assert _all(_job("collects", _collect), at_once=1) == {"collects": [[]]}
        gc.collect()
    finally:
        gc.enable()
    assert [os.getpid()] == _RELEASED_BY


def test_a_reader_may_add_jobs() -> None:
    jobs = deque([_job("first", lambda: [2])])
    found: list[Any] = []
    for _, result in run_in_children(jobs, at_once=1):
        found.append(result)
        if len(found) == 1:
            jobs.append(_job("next", partial(_powers, 3)))
    assert found == [2, 9, 27]


def test_children_end_when_nobody_asks_further(tmp_path: Path) -> None:
    asleep = tmp_path / "pid"

    def sleep() -> list[int]:
        asleep.with_suffix(".new").write_text(str(os.getpid()))
        asleep.with_suffix(".new").rename(asleep)
        return _wait()

    answers = run_in_children(deque([_job("one", lambda: [1]), _job("sleep", sleep)]), at_once=2)
    assert next(answers)[1] == 1
    while not asleep.exists():
        time.sleep(0.01)
    answers.close()  # type: ignore[attr-defined]  # a generator
    with pytest.raises(ProcessLookupError):
        os.kill(int(asleep.read_text()), 0)


def _not_lowered() -> list[int]:
    raise ValueError("heads are too small\n  target: attention\n  args[0]: TensorBox(\n  )")


def test_what_an_operator_was_given_is_left_out() -> None:
    assert _all(_job("lowering", _not_lowered), at_once=1) == {
        "lowering": [ChildFailure("ValueError: heads are too small\n  target: attention")]
    }
