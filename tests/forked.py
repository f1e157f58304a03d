"""The client of the fork server: run `python WORDS…` in a fork of a process that has torch loaded.

The server starts with the first command of a test process, or with pytest for all test processes, and ends
with the process that started it.  Standard library only, without other modules of the tests: each worker's
server that a command starts runs this file.
"""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

SOCKET = "AOTLENS_TESTS_FORK_SERVER"
"""Names the server's socket to the test processes and to the commands that it runs."""
BOUND = "--bound"
"""Before Python's words: the command is killed with the process that started it."""
ROOT = Path(__file__).resolve().parents[1]
LENGTH = struct.Struct("!I")
PID = struct.Struct("!Q")
STATUS = struct.Struct("!i")


@dataclass(frozen=True, slots=True, eq=False)
class Server:
    """The process, and the pipe whose end ends it."""

    process: "subprocess.Popen[bytes]"
    path: str
    pipe: int
    owner: int

    def stop(self) -> None:
        """End it and what it runs, unless this process is a fork of the one that started it."""
        if os.getpid() != self.owner:
            return
        os.close(self.pipe)
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:  # it is loading torch, and runs nothing yet
            self.process.kill()
            self.process.wait()
        shutil.rmtree(Path(self.path).parent)


@cache
def server() -> Server:
    """Return this process's server, and stop it at exit; forked children find it by its socket."""
    path = str(Path(tempfile.mkdtemp(prefix="aotlens-fork-")) / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        reading, writing = os.pipe()
        os.set_inheritable(writing, False)
        program = f"from tests.fork_server import main; main({listening.fileno()}, {reading})"
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONPATH": str(ROOT), SOCKET: path},
            stdin=subprocess.DEVNULL,
            pass_fds=(listening.fileno(), reading),
        )
    os.close(reading)
    started = Server(process, path, writing, os.getpid())
    atexit.register(started.stop)
    return started


def share_server() -> None:
    """Start the server now, for all processes that this one starts."""
    os.environ[SOCKET] = server().path


def server_path() -> str:
    return os.environ.get(SOCKET) or server().path


@dataclass(frozen=True, slots=True)
class Child:
    """A command that the server runs."""

    pid: int
    connection: socket.socket

    def wait(self, limit_s: float | None = None) -> int:
        """Return the exit code, negative for a signal; end the command if it takes longer."""
        self.connection.settimeout(limit_s)
        try:
            data = self.connection.recv(STATUS.size, socket.MSG_WAITALL)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            self.connection.close()
        if len(data) < STATUS.size:
            raise RuntimeError("the fork server ended before its command")
        return int(STATUS.unpack(data)[0])


def start(
    words: Sequence[str],
    streams: Sequence[int],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    new_session: bool = False,
    bound: bool = False,
    path: str | None = None,
) -> Child:
    """Start `python WORDS…` on the three streams."""
    path = path or server_path()
    environment = {**(os.environ if env is None else env), SOCKET: path}
    folder = cwd or os.getcwd()
    body = {"words": words, "cwd": folder, "env": environment, "new_session": new_session, "bound": bound}
    data = json.dumps(body).encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    socket.send_fds(connection, [LENGTH.pack(len(data))], list(streams))
    connection.sendall(data)
    answer = connection.recv(PID.size, socket.MSG_WAITALL)
    if len(answer) < PID.size:
        raise RuntimeError("the fork server ended before it started the command")
    return Child(PID.unpack(answer)[0], connection)


class Piped:
    """A running `python WORDS…` with three pipes, used like `subprocess.Popen`."""

    def __init__(self, *words: str, cwd: str | None = None) -> None:
        (stdin, own_stdin), (own_stdout, stdout), (own_stderr, stderr) = (os.pipe() for _ in range(3))
        self._child = start(words, (stdin, stdout, stderr), cwd=cwd)
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        self.pid = self._child.pid
        self.stdin: BinaryIO = open(own_stdin, "wb")  # noqa: SIM115 - they live as long as this
        self.stdout: BinaryIO = open(own_stdout, "rb")  # noqa: SIM115
        self.stderr: BinaryIO = open(own_stderr, "rb")  # noqa: SIM115
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; a command that takes longer is killed."""
        if self._code is None:
            self._code = self._child.wait(timeout)
        return self._code

    def kill(self) -> None:
        """Kill it, unless it has ended and its pid may be reused."""
        if self._code is None and not select.select([self._child.connection], [], [], 0)[0]:
            os.kill(self.pid, signal.SIGKILL)


def worker_command() -> tuple[str, ...]:
    """Return the command of `WorkerClient` for a forked server, which is warm at once."""
    return _relay_to_server("worker")


def bound_command(*words: str) -> tuple[str, ...]:
    """Return the command of a process that runs `python WORDS…` in a fork on its own streams."""
    return _relay_to_server(BOUND, *words)


def _relay_to_server(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", __file__, server_path(), *words)


class Forking(subprocess.Popen[Any]):
    """A `subprocess.Popen` that starts our own commands in a fork, and ends it with itself."""

    def __init__(self, args: Any, *rest: Any, **options: Any) -> None:
        if isinstance(args, list | tuple) and args[0] == sys.executable and _is_ours(args[1:]):
            args = [*bound_command(*map(str, args[1:]))]
        super().__init__(args, *rest, **options)


def _is_ours(words: Sequence[Any]) -> bool:
    """Return True if Python runs `aotlens`: as a module, or as the editor's server does."""
    match [str(word) for word in words]:
        case ["-m", module, *_] | ["-P", "-m", module, *_]:
            return module.split(".", maxsplit=1)[0] == "aotlens"
        case ["-P", "-c", code, *_]:
            return code.endswith("from aotlens.cli import main; sys.exit(main())")
    return False


def _relay(path: str, *words: str) -> int:
    """Start the command on this process's streams, and end as it ends."""
    bound = words[0] == BOUND
    child = start(words[bound:], (0, 1, 2), new_session=not bound, bound=bound, path=path)
    if bound:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: os.kill(child.pid, number))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (
        0,
        1,
        2,
    ):  # otherwise the reader of our output would wait for us after the command has ended
        os.dup2(null, stream)
    code = child.wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(_relay(*sys.argv[1:]))
