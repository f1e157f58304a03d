"""Every request gets an answer, whatever a trace raises or returns."""

import os
from typing import Any

import pytest

from aotlens.model.failure import Failure
from aotlens.worker.codec import Outcome, decode
from aotlens.worker.outcome import write_outcome
from aotlens.worker.protocol import TraceRequest


def failure_after(trace: Any) -> Failure:
    reading, writing = os.pipe()
    try:
        write_outcome(TraceRequest("train.py", id=1), trace, writing)
    finally:
        os.close(writing)
    with open(reading, "rb") as answers:
        outcome = decode(answers.read())
    assert isinstance(outcome, Outcome)
    assert outcome.report is None
    assert outcome.failure is not None
    return outcome.failure


@pytest.mark.parametrize("error", [ValueError("wrong"), SystemExit(1)], ids=["error", "exit"])
def test_what_a_trace_raises_is_told(error: BaseException) -> None:
    def trace(request: Any, progress: Any) -> Outcome:
        raise error

    failure = failure_after(trace)
    assert failure.kind == "internal"
    assert f"aotlens failed while tracing train.py: {type(error).__name__}: {error}" in failure.message
    assert "in trace" in failure.traceback


def test_a_fact_that_is_no_plain_data_is_told() -> None:
    failure = failure_after(lambda request, progress: Outcome({"time": object()}, None))
    assert failure.kind == "internal"
    assert "TypeError: Object of type object is not JSON serializable" in failure.message
