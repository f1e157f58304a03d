"""User code and tracing processes that go wrong, with the real worker: each is survived, with one message."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.language_servers import REAL, ROOT
from tests.lsp.processes import alive, descendants
from tests.lsp.strict_client import Json, Process, StrictClient, connect

TRACE_S = 150.0
"""A cold worker on a busy machine loads torch for this long at most."""
HEAD = "# aotlens: example f32[2]\ndef f(x):\n    return x * 2\n\n"
LIMITS = {"memoryLimitMiB": 1200}

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes from /proc")


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with Process(*REAL) as process:
        process.client.initialize(ROOT, LIMITS)
        yield process


@pytest.fixture
def client(process: Process) -> StrictClient:
    return process.client


def trace(client: StrictClient, path: Path, text: str) -> tuple[Json, list[str], list[tuple[str, int]]]:
    """What the command answers, the messages to the user, and the findings in the file with their lines."""
    path.write_text(text, encoding="utf-8")
    uri, mark = client.open(path), len(client.received)
    params = {"command": "aotlens.trace", "arguments": [uri, "f"]}
    answer = client.request("workspace/executeCommand", params, TRACE_S)
    new = client.received[mark:]
    said = [one["params"]["message"] for one in new if one.get("method") == "window/showMessage"]
    sent = [one["params"] for one in new if one.get("method") == "textDocument/publishDiagnostics"]
    found = [one for params in sent if params["uri"] == uri for one in params["diagnostics"]]
    return answer, said, [(one["code"], one["range"]["start"]["line"]) for one in found]


FAULTS = {
    "memory": ("a = []\nwhile True:\n    a.append(bytearray(50_000_000))\n", "memory", "AL908", 6),
    "hang": ("while True: pass\n", "timeout", "AL907", 4),  # a loop of one line is only ever seen there
    "crash": ("import ctypes\nctypes.string_at(0)\n", "crash", "AL909", 5),
    "mistake": (
        "import torch\ndef g(x, w):\n    return x @ w\ntorch.compile(g)(torch.ones(4, 5), torch.ones(4))\n",
        "user",
        "AL902",
        6,
    ),
    "killed": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "crash", "AL909", 0),
}


@pytest.mark.rotates
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_script_is_one_message_at_its_line(
    client: StrictClient, tmp_path: Path, fault: str
) -> None:
    body, kind, code, line = FAULTS[fault]
    limit = {"timeLimitSeconds": 5} if fault == "hang" else {}  # the others take what a busy machine needs
    client.notify("workspace/didChangeConfiguration", {"settings": {"aotlens": {**LIMITS, **limit}}})
    answer, said, found = trace(client, tmp_path / "script.py", HEAD + body)
    client.notify("workspace/didChangeConfiguration", {"settings": {"aotlens": LIMITS}})
    assert (answer["failure"], found) == (kind, [(code, line)])
    assert said == [answer["message"]]
    assert "script.py" in said[0]
    answer, said, found = trace(client, tmp_path / "next.py", HEAD)
    assert (answer["targets"], said, found) == (["f"], [], [])


@pytest.mark.rotates
def test_a_script_that_writes_to_every_stream(client: StrictClient, tmp_path: Path) -> None:
    noise = (
        "import os, subprocess, sys\nprint('one')\nos.write(1, b'Content-Length: 2\\r\\n\\r\\n{}')\n"
        "sys.stderr.write('two')\nsubprocess.run(['echo', 'three'])\nassert sys.stdin.read() == ''\n"
    )
    mark = len(client.received)
    answer, said, found = trace(client, tmp_path / "noise.py", HEAD + noise)
    assert (answer.get("targets"), said, found) == (["f"], [], [])
    log = client.notification("window/logMessage", mark)["message"]
    assert log.startswith("output of noise.py::f:\n")
    assert all(word in log for word in ("one", "Content-Length: 2", "two", "three"))


def test_two_files_are_traced_at_once(client: StrictClient, tmp_path: Path) -> None:
    """Each waits until it sees that the other runs."""
    wait = (
        "import pathlib, time\npathlib.Path({0!r}).touch()\n"
        "while not pathlib.Path({1!r}).exists():\n    time.sleep(0.01)\n"
    )
    marks = str(tmp_path / "first"), str(tmp_path / "second")
    numbers = []
    for name, ends in (("a.py", marks), ("b.py", marks[::-1])):
        path = tmp_path / name
        path.write_text(HEAD + wait.format(*ends), encoding="utf-8")
        params = {"command": "aotlens.trace", "arguments": [client.open(path), "f"]}
        numbers.append(client.send("workspace/executeCommand", params))
    assert [client.answer(number, TRACE_S)["targets"] for number in numbers] == [["f"], ["f"]]


def worker_of(pid: int) -> int:
    """The tracing process of a server: its one child, once it is there."""
    wait_until(lambda: bool(descendants(pid)))
    children = [one for one in descendants(pid) if _parent(one) == pid]
    assert len(children) == 1
    return children[0]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + TRACE_S
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    assert holds()


@pytest.mark.rotates
def test_a_tracing_process_that_is_killed_is_replaced(process: Process, tmp_path: Path) -> None:
    client, pid, mark = process.client, process.popen.pid, len(process.client.received)
    running = tmp_path / "running"
    path = tmp_path / "endless.py"
    path.write_text(f"{HEAD}open({str(running)!r}, 'w').close()\nwhile True:\n    pass\n", encoding="utf-8")
    params = {"command": "aotlens.trace", "arguments": [client.open(path), "f"]}
    number = client.send("workspace/executeCommand", params)
    wait_until(running.exists)
    started = descendants(pid)
    os.kill(worker_of(pid), signal.SIGKILL)
    answer = client.answer(number, TRACE_S)
    assert answer["failure"] == "killed"
    said = [one["params"] for one in client.received[mark:] if one.get("method") == "window/showMessage"]
    assert said == [{"type": 1, "message": answer["message"]}]
    assert "killed by SIGKILL" in answer["message"]
    wait_until(lambda: not any(map(alive, started)))
    next_answer, said, found = trace(client, tmp_path / "next.py", HEAD)
    assert (next_answer["targets"], said, found) == (["f"], [], [])


@pytest.mark.rotates
def test_a_client_that_leaves_a_tcp_session_during_a_trace_leaves_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "running"
    path = tmp_path / "endless.py"
    path.write_text(f"{HEAD}open({str(mark)!r}, 'w').close()\nwhile True:\n    pass\n", encoding="utf-8")
    with Process(*REAL, "--tcp", "0") as process:
        process.left = True
        wait_until(lambda: bool(process.errors))
        port = int(process.errors[0].rpartition(":")[2])
        process.expected = (1, list(process.errors))
        client, connection = connect("127.0.0.1", port)
        client.initialize(ROOT)
        params = {"command": "aotlens.trace", "arguments": [client.open(path), "f"]}
        client.send("workspace/executeCommand", params)
        wait_until(mark.exists)
        started = descendants(process.popen.pid)
        assert len(started) >= 2
        connection.shutdown(2)
        connection.close()
        wait_until(lambda: not any(map(alive, started)))


@pytest.mark.rotates
def test_a_tracing_process_that_says_nothing_is_ended(tmp_path: Path) -> None:
    """The real client over a process that reads requests and answers none."""
    path = tmp_path / "script.py"
    path.write_text(HEAD, encoding="utf-8")
    with Process("-m", "tests.lsp.silent_worker") as process:
        process.client.initialize(ROOT, {"timeLimitSeconds": 0.2})
        uri = process.client.open(path)
        started = worker_of(process.popen.pid)
        answer = process.client.command("aotlens.trace", uri, "f")
        assert answer["message"].endswith(" s and was stopped: retrace")
        assert process.client.all("window/showMessage") == [{"type": 1, "message": answer["message"]}]
        assert not alive(started)
        assert process.client.at("hover", uri, 0, 0) is None
