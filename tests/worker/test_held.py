"""Questions about a trace that the server holds: the script does not run again."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.worker.client import WorkerClient
from aotlens.worker.held import CAN_HOLD
from aotlens.worker.process import child_pids
from aotlens.worker.protocol import Answer, TraceOptions, TraceRequest

FAKE_SERVER = Path(__file__).with_name("fake_server.py")
ANSWER_S = 120.0
SCRIPT = """\
import sys, types
module = types.ModuleType("held_state")
module.state = "as the script left it"
sys.modules["held_state"] = module
print("ran")
"""

pytestmark = pytest.mark.skipif(not CAN_HOLD, reason="nothing is held where orphans cannot be adopted")


@pytest.fixture
def client() -> Iterator[WorkerClient]:
    with WorkerClient(command=[sys.executable, str(FAKE_SERVER)]) as started:
        yield started


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return file


def trace(client: WorkerClient, script: Path, **options: object) -> Answer:
    return client.submit(TraceRequest(str(script), hold=True, **options)).future.result(ANSWER_S)  # type: ignore[arg-type]


def ask(client: WorkerClient, script: Path, change: str) -> Answer:
    return trace(client, script, options=TraceOptions(what_if=(change,), only_what_if=True))


def held_pid(client: WorkerClient) -> int:
    """The only child of a server that traces nothing."""
    assert client.hello is not None
    (held,) = child_pids(client.hello.pid)
    return held


def state(answer: Answer) -> tuple[object, str]:
    assert answer.failure is None, answer.failure
    assert answer.report is not None
    return answer.report.get("state"), answer.output


def test_questions_are_answered_in_forks_of_what_the_script_left(client: WorkerClient, script: Path) -> None:
    first = trace(client, script)
    assert (first.output, first.report is not None) == ("ran\n", True)
    answers = [ask(client, script, f"save:{name}") for name in "abc"]
    assert [state(answer) for answer in answers] == [("as the script left it", "")] * 3
    assert len({answer.report["pid"] for answer in answers if answer.report}) == 3


def test_a_first_question_runs_the_script_and_holds_it(client: WorkerClient, script: Path) -> None:
    assert state(ask(client, script, "save:a")) == (None, "ran\n")
    assert state(ask(client, script, "save:b")) == ("as the script left it", "")


def test_an_edited_script_runs_again(client: WorkerClient, script: Path) -> None:
    trace(client, script)
    script.write_text(SCRIPT.replace("ran", "ran edited"))
    assert state(ask(client, script, "save:a")) == (None, "ran edited\n")


def test_other_options_run_the_script_again(client: WorkerClient, script: Path) -> None:
    trace(client, script)
    options = TraceOptions(what_if=("save:a",), only_what_if=True, dynamic=True)
    assert state(trace(client, script, options=options)) == (None, "ran\n")


def test_a_question_can_be_cancelled_and_the_next_one_is_answered(client: WorkerClient, script: Path) -> None:
    trace(client, script)
    options = TraceOptions(what_if=("hang",), only_what_if=True)
    job = client.submit(TraceRequest(str(script), hold=True, options=options))
    assert ask(client, script, "save:a").failure is None  # the other one is running, or waits, by now
    job.cancel()
    failure = job.future.result(ANSWER_S).failure
    assert failure is not None
    assert failure.kind == "cancelled"
    assert state(ask(client, script, "save:b")) == ("as the script left it", "")


def test_a_held_process_ends_with_its_server(script: Path) -> None:
    with WorkerClient(command=[sys.executable, str(FAKE_SERVER)]) as client:
        trace(client, script)
        held = held_pid(client)
    deadline = time.monotonic() + ANSWER_S
    while os.path.exists(f"/proc/{held}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{held}")


def test_a_held_process_that_was_killed_runs_the_script_again(client: WorkerClient, script: Path) -> None:
    trace(client, script)
    os.kill(held_pid(client), signal.SIGKILL)
    assert state(ask(client, script, "save:a")) == (None, "ran\n")
