"""The server without `fork`: the same answers, from fresh processes; and which server is taken."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.errors import UserError
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import Progress, TraceRequest
from aotlens.worker.start import VARIABLE, start_method
from tests.worker.test_server import (
    ANSWER_S,
    FAKE_SERVER,
    alive,
    answer,
    assert_dies,
    failure_of,
    wait_for_pid,
)

COMMAND = [sys.executable, str(FAKE_SERVER), "spawn"]


@pytest.fixture(scope="module")
def client() -> Iterator[WorkerClient]:
    with WorkerClient(command=COMMAND) as started:
        yield started


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.py"


def test_a_report_with_progress_and_output(client: WorkerClient, script: Path) -> None:
    seen: list[Progress] = []
    source = "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.write(1, b'raw\\n')\n"
    got = answer(client, script, source, argv=("a",), on_progress=seen.append)
    assert got.report is not None
    assert (got.failure, got.output, got.report["argv"]) == (None, "out\nerr\nraw\n", ["a"])
    assert got.report["pid"] != (client.hello.pid if client.hello else 0)
    assert [event.stage for event in seen] == ["import", "run"]


@pytest.mark.rotates
def test_failures_read_as_those_of_the_other_server(client: WorkerClient, script: Path) -> None:
    assert failure_of(answer(client, script, "x = (\n"))[0] == "syntax"
    assert failure_of(answer(client, script, "1 / 0\n"))[:2] == (
        "user",
        f"{script}:1 raised ZeroDivisionError: division by zero",
    )
    assert "exit code 3 (os._exit" in failure_of(answer(client, script, "import os\nos._exit(3)\n"))[1]
    crash = "import os, signal\ndef crash():\n    os.kill(os.getpid(), signal.SIGSEGV)\ncrash()\n"
    assert failure_of(answer(client, script, crash)) == (
        "crash",
        f"{script} crashed at {script}:3 in `crash`: killed by SIGSEGV",
        3,
    )


@pytest.mark.rotates
def test_an_endless_loop_says_where_it_was(client: WorkerClient, script: Path) -> None:
    source = "def spin():\n    while True:\n        pass\n\nspin()\n"
    kind, message, line = failure_of(answer(client, script, source, time_limit_s=3.0))
    assert (kind, line in (2, 3)) == ("timeout", True)
    assert f"ran longer than 3 s and was stopped; it was at {script}:{line} in `spin`" in message


@pytest.mark.rotates
def test_memory_and_output_are_limited(client: WorkerClient, script: Path) -> None:
    hog = "import time\nhog = bytearray(400 << 20)\nwhile True:\n    time.sleep(0.01)\n"
    assert failure_of(answer(client, script, hog, memory_limit_bytes=200 << 20))[0] == "memory"
    got = answer(client, script, "for i in range(400_000): print('line', i)\n")
    assert got.output.startswith("line 0\n")
    assert got.output.endswith("line 399999\n")
    assert len(got.output) < 200_000


def test_cancel_and_submit_again(client: WorkerClient, script: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script.write_text(f"import os\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n")
    older = client.submit(TraceRequest(str(script)))
    pid = wait_for_pid(pid_file)
    script.write_text("print('new')\n")
    older.cancel()
    newer = client.submit(TraceRequest(str(script)))
    assert failure_of(older.future.result(ANSWER_S))[0] == "cancelled"
    assert newer.future.result(ANSWER_S).output == "new\n"
    assert not alive(pid)


def test_many_requests_and_the_cache(client: WorkerClient, tmp_path: Path) -> None:
    scripts = [tmp_path / f"s{index}.py" for index in range(4)]
    for index, script in enumerate(scripts):
        script.write_text(f"print({index})\n")
        os.utime(script, (1, 1))
    jobs = [client.submit(TraceRequest(str(script))) for script in scripts]
    assert [job.future.result(ANSWER_S).output for job in jobs] == [f"{index}\n" for index in range(4)]
    assert client.submit(TraceRequest(str(scripts[0]))).future.result(ANSWER_S).cached


def test_what_a_script_leaves_running_is_ended(client: WorkerClient, script: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    source = f"""\
        import subprocess
        subprocess.Popen(["sh", "-c", "echo $$ > {pid_file}; exec sleep 1000"])
        while not open({str(pid_file)!r}, "a+").tell():
            pass
    """
    assert answer(client, script, source).report is not None
    assert_dies(wait_for_pid(pid_file))


def test_no_child_outlives_a_killed_server(script: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script.write_text(f"import os\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n")
    with WorkerClient(command=COMMAND) as own:
        job = own.submit(TraceRequest(str(script)))
        pid = wait_for_pid(pid_file)
        assert own.hello is not None
        os.kill(own.hello.pid, signal.SIGKILL)
        assert failure_of(job.future.result(ANSWER_S))[0] == "killed"
    assert_dies(pid)


@pytest.mark.parametrize(
    ("chosen", "platform", "has_fork", "expected"),
    [
        (None, "linux", True, "fork"),
        ("", "linux", True, "fork"),
        ("spawn", "linux", True, "spawn"),
        (None, "darwin", True, "spawn"),
        ("fork", "darwin", True, "fork"),
        (None, "win32", False, "spawn"),
    ],
)
def test_which_server_is_taken(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, platform: str, has_fork: bool, expected: str
) -> None:
    _pretend(monkeypatch, chosen, platform, has_fork)
    assert start_method() == expected


def test_a_choice_that_the_system_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, "fork", "win32", has_fork=False)
    with pytest.raises(UserError, match="is `fork`, which this system does not have"):
        start_method()
    monkeypatch.setenv(VARIABLE, "thread")
    with pytest.raises(UserError, match="it can be `fork` or `spawn`"):
        start_method()


def test_a_wrong_choice_reaches_whoever_asked_for_a_trace(script: Path) -> None:
    script.write_text("")
    with WorkerClient(env={VARIABLE: "thread"}) as own:
        message = failure_of(own.submit(TraceRequest(str(script))).future.result(ANSWER_S))[1]
    assert message.endswith("AOTLENS_WORKER_START is 'thread'; it can be `fork` or `spawn`")


def _pretend(monkeypatch: pytest.MonkeyPatch, chosen: str | None, platform: str, has_fork: bool) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    if not has_fork:
        monkeypatch.delattr(os, "fork")
    if chosen is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, chosen)


WITHOUT = '''\
"""A Python on another system: what Windows and macOS lack is taken out of every process."""
import asyncio  # reads `os.sysconf` where the system, as here, has the sockets of POSIX
import faulthandler
import os
import signal
import sys

for module, names in {
    os: "fork forkpty setsid killpg getpgid geteuid getuid sysconf waitid sched_getaffinity",
    signal: "SIGUSR1 SIGCHLD SIGHUP",
    faulthandler: "register",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in ("resource", "termios", "pwd", "grp", "triton"):
    sys.modules[name] = None
'''
SCRIPT = """\
import torch


# aotlens: example f32[8, 4] grad
def step(x):
    return x.tanh().sum()


if __name__ == "__main__":
    weight = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = torch.optim.SGD([weight], 0.1)
    compiled = torch.compile(step)
    for _ in range(6):
        compiled(torch.ones(8, 4) @ weight).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.rotates
def test_a_trace_where_nothing_of_posix_is_there(tmp_path: Path) -> None:
    """The whole way, from the command to the report; 25 s, since each process loads torch."""
    done = _elsewhere(tmp_path, "inspect", "step.py")
    assert done.returncode == 0, done.stderr
    assert "── step ──" in done.stdout
    assert "Saved for backward" in done.stdout


@pytest.mark.rotates("all")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run --backend eager step.py", "aotlens: 1 function"),
        ("verify --backend eager step.py", "equal         step"),
        ("why step.py", "Compile time"),
        ("why --forecast step.py", "x.requires_grad: True → False"),
        ("check step.py", "1 target of 1 file"),
        ("diff step.py other.py", "forward sin = aten.sin.default"),
        ("export step.py::step", "compiled ahead of time: forward and backward"),
        ("fit step.py", "at the peak of step"),
        ("doctor", "traces run in fresh processes"),
    ],
)
def test_commands_where_nothing_of_posix_is_there(tmp_path: Path, words: str, expected: str) -> None:
    """What docs/platforms.md says of Windows; 10 s each, since each process loads torch."""
    (tmp_path / "other.py").write_text(SCRIPT.replace("tanh", "sin"))
    done = _elsewhere(tmp_path, *words.split())
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout + done.stderr


def test_code_for_a_gpu_needs_triton_and_says_so(tmp_path: Path) -> None:
    done = _elsewhere(tmp_path, "inspect", "step.py", "--gpu", "h100")
    assert (done.returncode, done.stdout) == (2, "")
    assert "code for a GPU needs Triton, which is not installed" in done.stderr


def _elsewhere(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The command where `WITHOUT` runs before anything else, in every process."""
    (folder / "sitecustomize.py").write_text(WITHOUT)
    (folder / "step.py").write_text(SCRIPT)
    path = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    return subprocess.run(
        [sys.executable, "-m", "aotlens", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "NO_COLOR": "1", "USERNAME": "ada"},  # as Windows sets it
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
