"""Compare a command in a fork of the loaded process with the same command in its own process."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Ended, forked, python
from tests.forked import LENGTH, Server, server_path, start

PROGRAMS = {
    "streams": "import sys; print('out'); sys.stderr.write('err\\n'); print(sys.stdin.read() == '')",
    "exit code": "import sys; sys.exit(7)",
    "exit message": "import sys; sys.exit('no way')",
    "exception": "def f():\n    return 1 / 0\nf()",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "arguments": "import sys; print(sys.argv, __name__, sys.path[0])",
    "at exit": "import atexit; atexit.register(print, 'at exit'); print('before')",
    "threads": "import threading; threading.Timer(0.1, print, ['from a thread']).start()",
    "a child": "import os\nprint('x', flush=True)\nif os.fork() == 0:\n    os._exit(0)\nprint(os.wait()[1])",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_a_process(name: str, tmp_path: Path) -> None:
    words = ("-c", PROGRAMS[name], "--word", "a b")
    assert forked(*words, cwd=tmp_path) == python(*words, cwd=tmp_path)


def test_its_folder_and_environment(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['COLUMNS'])"
    assert forked("-c", code, cwd=tmp_path) == Ended(0, f"{tmp_path} 110\n", "")


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 3\n")
    (tmp_path / "script.py").write_text("import sys, beside\nprint(sys.argv, __file__, beside.VALUE)\n")
    words = ("script.py", "--lr", "1")
    assert forked(*words, cwd=tmp_path) == python(*words, cwd=tmp_path)


def test_nothing_comes_back() -> None:
    forked("-c", "import sys, os; sys.modules['aotlens'] = None; os.environ['LEFT'] = '1'; sys.left = 1")
    ended = forked("-c", "import sys, os, aotlens; print('LEFT' in os.environ, hasattr(sys, 'left'))")
    assert ended == Ended(0, "False False\n", "")


def test_a_bound_command_ends_with_its_client() -> None:
    reading, writing = os.pipe()
    waits = "import signal; print('waits', flush=True); signal.pause()"
    child = start(("-c", waits), (0, writing, writing), bound=True)
    os.close(writing)
    with open(reading, "rb") as output:
        assert output.readline() == b"waits\n"
        child.connection.close()
        assert output.read() == b""  # the other end is closed


def test_a_client_that_leaves_early_does_not_end_the_server() -> None:
    """As one that was killed while the machine was busy."""
    words = json.dumps({"words": ("-c", "pass"), "cwd": os.getcwd(), "env": dict(os.environ)}).encode()
    with open(os.devnull, "rb") as nothing:
        streams = [nothing.fileno()] * 3
        for body in (b"", words[:9], words):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(server_path())
                if body:
                    socket.send_fds(connection, [LENGTH.pack(len(words))], streams)
                    connection.sendall(body)
    ended = forked("-c", "print('serves')")
    assert (ended.code, ended.out) == (0, "serves\n")


def test_a_fork_of_a_test_process_leaves_the_server_alone(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=reading) as process:
        os.close(reading)
        Server(process, str(tmp_path / "socket"), writing, os.getpid() + 1).stop()
        assert (process.poll(), tmp_path.exists()) == (None, True)
        Server(process, str(tmp_path / "socket"), writing, os.getpid()).stop()
        assert (process.poll() is not None, tmp_path.exists()) == (True, False)
