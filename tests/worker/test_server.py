"""Whatever a script does to its process, the request gets one answer and the next request works."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.worker.client import OnProgress, WorkerClient
from aotlens.worker.protocol import Answer, Progress, TraceRequest
from tests.command import without_carets
from tests.worker.limits import begun

FAKE_SERVER = Path(__file__).with_name("fake_server.py")
ANSWER_S = 120.0


@pytest.fixture(scope="module")
def client() -> Iterator[WorkerClient]:
    with WorkerClient(command=[sys.executable, str(FAKE_SERVER)]) as started:
        yield started


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.py"


def answer(
    client: WorkerClient,
    script: Path,
    source: str,
    on_progress: OnProgress | None = None,
    **options: object,
) -> Answer:
    script.write_text(textwrap.dedent(source))
    request = TraceRequest(str(script), **options)  # type: ignore[arg-type]
    got = client.submit(request, on_progress).future.result(ANSWER_S)
    after = script.with_name("after.py")
    after.write_text("print('still here')")
    assert (
        client.submit(TraceRequest(str(after), fresh=True)).future.result(ANSWER_S).output == "still here\n"
    )
    return got


def failure_of(got: Answer) -> tuple[str, str, int | None]:
    assert got.failure is not None
    return got.failure.kind, got.failure.message, got.failure.line


def test_a_script_that_ends_gives_its_report_and_its_output(client: WorkerClient, script: Path) -> None:
    got = answer(client, script, "import sys; print('out'); print('err', file=sys.stderr)", argv=("a", "-b"))
    assert got.report is not None
    assert (got.failure, got.output, got.report["argv"]) == (None, "out\nerr\n", ["a", "-b"])


def test_progress_comes_before_the_answer(client: WorkerClient, script: Path) -> None:
    script.write_text("")
    seen: list[Progress] = []
    client.submit(TraceRequest(str(script)), on_progress=seen.append).future.result(ANSWER_S)
    assert [event.stage for event in seen] == ["import", "run"]


def test_a_progress_callback_that_raises_harms_nobody(script: Path) -> None:
    def broken(progress: Progress) -> None:
        raise ValueError(progress.stage)

    script.write_text("print('ok')\n")
    log: list[str] = []
    with WorkerClient(command=[sys.executable, str(FAKE_SERVER)], on_log=log.append) as client:
        got = client.submit(TraceRequest(str(script)), on_progress=broken).future.result(ANSWER_S)
    assert (got.output, log[:1]) == ("ok\n", ["a progress callback raised ValueError: import"])


def test_missing_file(client: WorkerClient, tmp_path: Path) -> None:
    got = client.submit(TraceRequest(str(tmp_path / "nothing.py"))).future.result(ANSWER_S)
    assert failure_of(got) == ("no-file", f"no such file: {tmp_path / 'nothing.py'}", None)


def test_a_folder_is_no_script(client: WorkerClient, tmp_path: Path) -> None:
    got = client.submit(TraceRequest(str(tmp_path))).future.result(ANSWER_S)
    assert failure_of(got) == ("no-file", f"{tmp_path} is a folder; give a Python script", None)


def test_syntax_error(client: WorkerClient, script: Path) -> None:
    got = answer(client, script, "x = 1\ny = (\n")
    assert failure_of(got) == ("syntax", f"{script}:2: syntax error: '(' was never closed", 2)


def test_not_utf8(client: WorkerClient, script: Path) -> None:
    script.write_bytes(b"x = '\xff'\n")
    got = client.submit(TraceRequest(str(script))).future.result(ANSWER_S)
    assert failure_of(got)[0] == "syntax"


def test_exception_shows_only_the_users_frames(client: WorkerClient, script: Path) -> None:
    got = answer(client, script, "def broken():\n    raise ValueError('no such thing')\n\nbroken()\n")
    assert failure_of(got) == ("user", f"{script}:2 raised ValueError: no such thing", 2)
    assert got.failure is not None
    assert without_carets(got.failure.traceback or "") == (
        "Traceback (most recent call last):\n"
        f'  File "{script}", line 4, in <module>\n    broken()\n'
        f"  File \"{script}\", line 2, in broken\n    raise ValueError('no such thing')\n"
        "ValueError: no such thing\n"
    )


def test_sys_exit(client: WorkerClient, script: Path) -> None:
    got = answer(client, script, "import sys\nprint('bye')\nsys.exit(3)\n")
    assert failure_of(got) == ("exit", f"{script}:3 called sys.exit with code 3 before the trace was done", 3)
    assert got.output == "bye\n"


def test_os_exit(client: WorkerClient, script: Path) -> None:
    got = answer(client, script, "import os\nos._exit(3)\n")
    assert failure_of(got)[0] == "exit"
    assert "exit code 3 (os._exit" in failure_of(got)[1]


@pytest.mark.rotates
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_megabytes_of_output_keep_head_and_tail(client: WorkerClient, script: Path, stream: str) -> None:
    got = answer(
        client, script, f"import sys\nfor i in range(400_000): print('line', i, file=sys.{stream})\n"
    )
    assert got.report is not None
    assert got.output.startswith("line 0\nline 1\n")
    assert got.output.endswith("line 399999\n")
    assert "bytes of output cut here" in got.output
    assert len(got.output) < 200_000


def test_output_of_native_code_and_of_subprocesses_is_captured(client: WorkerClient, script: Path) -> None:
    got = answer(client, script, "import os\nos.write(1, b'raw\\n')\nos.system('echo child')\n")
    assert got.output == "raw\nchild\n"


def test_reading_stdin_meets_its_end(client: WorkerClient, script: Path) -> None:
    got = answer(client, script, "input()\n")
    assert failure_of(got) == ("user", f"{script}:1 raised EOFError: EOF when reading a line", 1)


def test_endless_loop_says_where_it_was(client: WorkerClient, script: Path) -> None:
    source = "def spin():\n    while True:\n        pass\n\nspin()\n"
    got, limit = begun(lambda limit_s: answer(client, script, source, time_limit_s=limit_s))
    kind, message, line = failure_of(got)
    assert (kind, line in (2, 3)) == ("timeout", True)
    assert f"ran longer than {limit:g} s and was stopped; it was at {script}:{line} in `spin`" in message
    assert got.failure is not None
    assert got.failure.traceback.startswith(
        f'Traceback (most recent call last):\n  File "{script}", line 5, in <module>\n    spin()\n'
    )


@pytest.mark.rotates
def test_a_script_that_ignores_every_signal_is_stopped(client: WorkerClient, script: Path) -> None:
    source = """\
        import signal
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass
    """
    assert failure_of(answer(client, script, source, time_limit_s=0.5))[0] == "timeout"


def test_memory(client: WorkerClient, script: Path) -> None:
    source = "import time\nhog = bytearray(400 << 20)\nwhile True:\n    time.sleep(0.01)\n"
    got = answer(client, script, source, memory_limit_bytes=200 << 20)
    kind, message, line = failure_of(got)
    assert kind == "memory"
    assert "more than the limit of 200 MiB" in message
    assert line in (2, 4)


def test_crash_says_where_it_was(client: WorkerClient, script: Path) -> None:
    got = answer(
        client, script, "import os, signal\ndef crash():\n    os.kill(os.getpid(), signal.SIGSEGV)\ncrash()\n"
    )
    assert failure_of(got) == ("crash", f"{script} crashed at {script}:3 in `crash`: killed by SIGSEGV", 3)


def test_cancel_a_running_trace(client: WorkerClient, script: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script.write_text(f"import os\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n")
    job = client.submit(TraceRequest(str(script)))
    pid = wait_for_pid(pid_file)
    job.cancel()
    assert failure_of(job.future.result(ANSWER_S)) == (
        "cancelled",
        f"the trace of {script} was cancelled",
        None,
    )
    assert not alive(pid)
    job.cancel()  # of no effect, and no error


def test_a_cancelled_request_makes_room_for_a_newer_one(client: WorkerClient, script: Path) -> None:
    script.write_text("while True: pass\n")
    older = client.submit(TraceRequest(str(script)))
    script.write_text("print('new')\n")
    older.cancel()
    newer = client.submit(TraceRequest(str(script)))
    assert failure_of(older.future.result(ANSWER_S))[0] == "cancelled"
    assert newer.future.result(ANSWER_S).output == "new\n"


def test_more_requests_than_run_at_once(client: WorkerClient, tmp_path: Path) -> None:
    for index in range(6):
        (tmp_path / f"s{index}.py").write_text(f"print({index})\n")
    jobs = [client.submit(TraceRequest(str(tmp_path / f"s{index}.py"))) for index in range(6)]
    assert [job.future.result(ANSWER_S).output for job in jobs] == [f"{index}\n" for index in range(6)]


def test_the_cache_follows_the_sources(client: WorkerClient, script: Path) -> None:
    def cached(source: str, **options: object) -> bool:
        if source != (script.read_text() if script.exists() else None):
            script.write_text(source)
            os.utime(script, (1, 1))  # older than the trace, as a file that was not just saved
        return client.submit(TraceRequest(str(script), **options)).future.result(ANSWER_S).cached  # type: ignore[arg-type]

    first, second = "print(1)\n", "print(2)\n"
    assert [cached(first), cached(first), cached(second), cached(second), cached(first)] == [
        False, True, False, True, False,
    ]  # fmt: skip
    assert [cached(first, argv=("x",)), cached(first, fresh=True)] == [False, False]


def test_failures_are_not_cached(client: WorkerClient, script: Path) -> None:
    script.write_text("1 / 0\n")
    os.utime(script, (1, 1))
    assert [client.submit(TraceRequest(str(script))).future.result(ANSWER_S).cached for _ in range(2)] == [
        False,
        False,
    ]


def test_what_a_script_leaves_running_is_ended(client: WorkerClient, script: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    source = f"""\
        import subprocess
        subprocess.Popen(["sh", "-c", "echo $$ > {pid_file}; exec sleep 1000"], start_new_session=True)
        while not open({str(pid_file)!r}, "a+").tell():
            pass
    """
    assert answer(client, script, source).report is not None
    assert_dies(wait_for_pid(pid_file))


def test_no_orphans_when_the_client_closes(script: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script.write_text(f"import os\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n")
    client = WorkerClient(command=[sys.executable, str(FAKE_SERVER)])
    job = client.submit(TraceRequest(str(script)))
    pid = wait_for_pid(pid_file)
    client.close()
    assert failure_of(job.future.result(ANSWER_S))[0] == "cancelled"
    assert_dies(pid)


@pytest.mark.parametrize("victim", ["client", "server"])
def test_no_orphans_when_a_process_is_killed(script: Path, tmp_path: Path, victim: str) -> None:
    pid_file = tmp_path / "pid"
    script.write_text(f"import os\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n")
    program = f"""
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import TraceRequest
client = WorkerClient(command=[{sys.executable!r}, {str(FAKE_SERVER)!r}])
print(client.submit(TraceRequest({str(script)!r})).future.result().failure.message, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid = wait_for_pid(pid_file)
    server = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(process.pid if victim == "client" else server, signal.SIGKILL)
    output, _ = process.communicate(timeout=ANSWER_S)
    assert_dies(pid)
    assert_dies(server)
    if victim == "server":
        assert output.startswith("the tracing process was killed by SIGKILL")


def test_a_dead_server_is_replaced(script: Path) -> None:
    script.write_text("print('ok')\n")
    with WorkerClient(command=[sys.executable, str(FAKE_SERVER)]) as client:
        client.submit(TraceRequest(str(script))).future.result(ANSWER_S)
        assert client.hello is not None
        os.kill(client.hello.pid, signal.SIGKILL)
        assert_dies(client.hello.pid)
        assert client.submit(TraceRequest(str(script))).future.result(ANSWER_S).output == "ok\n"


def test_a_server_that_cannot_start(tmp_path: Path) -> None:
    with WorkerClient(command=[sys.executable, "-c", "import no_such_module"]) as client:
        kind, message, _ = failure_of(
            client.submit(TraceRequest(str(tmp_path / "x.py"))).future.result(ANSWER_S)
        )
    assert kind == "internal"
    assert "could not start (exit code 1): ModuleNotFoundError: No module named 'no_such_module'" in message


def test_no_such_interpreter(tmp_path: Path) -> None:
    with WorkerClient(python=str(tmp_path / "python")) as client:
        kind, message, _ = failure_of(
            client.submit(TraceRequest(str(tmp_path / "x.py"))).future.result(ANSWER_S)
        )
    assert (kind, "could not start" in message) == ("internal", True)


def wait_for_pid(file: Path) -> int:
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        if file.exists() and file.read_text().strip():
            return int(file.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{file} was not written")


def assert_dies(pid: int) -> None:
    end = time.monotonic() + ANSWER_S
    while alive(pid):
        assert time.monotonic() < end, f"process {pid} lives on"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
