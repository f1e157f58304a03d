"""A process that has loaded torch and the engine, and forks a child for each command that a test runs.

Promise: a child behaves like `python WORDS…` started by the client, with its own arguments, folder,
environment, search path, standard streams and exit status, and does not affect this process.
"""

import atexit
import importlib
import io
import json
import linecache
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

WORKER = "worker"
"""In place of Python's words: the server of `aotlens.worker`, already warm."""
LENGTH = struct.Struct("!I")
ENDED = struct.Struct("!Qi")
"""The child's pid, then its exit status."""


@dataclass(frozen=True, slots=True)
class Request:
    """One command, sent by the client together with its three standard streams."""

    words: tuple[str, ...]
    """The words after `python`, or `WORKER` and its arguments."""
    cwd: str
    env: dict[str, str]
    new_session: bool = False
    """As `start_new_session` of `subprocess.Popen`."""
    bound: bool = False
    """Whether the command is killed when its client ends before it."""


class Running:
    """The running commands, and the connections on which their clients wait for them."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.connections: dict[int, socket.socket] = {}
        self._bound: dict[int, int] = {}

    def add(self, pid: int, connection: socket.socket, request: Request) -> None:
        """Add the process of a command; a bound one ends with its connection."""
        self.connections[pid] = connection
        if request.bound:
            self._bound[connection.fileno()] = pid
            self.selector.register(connection, selectors.EVENT_READ)
        try:
            connection.sendall(struct.pack("!Q", pid))
        except OSError:  # the client has left, and nobody waits for the command
            os.kill(pid, signal.SIGKILL)

    def report_ended(self) -> None:
        """Send the exit code of each command that has ended."""
        for pid in list(self.connections):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with (
                    self.connections.pop(pid) as connection,
                    suppress(OSError),
                ):  # a client that closed its end
                    if self._bound.pop(connection.fileno(), None) is not None:
                        self.selector.unregister(connection)
                    connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))

    def leave(self, descriptor: int) -> None:
        """End the command whose client closed the connection."""
        pid = self._bound.pop(descriptor, None)
        if pid is not None:  # otherwise it was reported a moment ago
            self.selector.unregister(descriptor)
            os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """End all of them."""
        for pid in self.connections:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main(listening: int, client: int) -> None:
    """Serve until the other end of `client` is closed; `listening` is a listening socket."""
    warm = _load()
    server = socket.socket(fileno=listening)
    running = Running()
    wakeup, wakeup_in = os.pipe()
    os.set_blocking(wakeup_in, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # its arrival wakes the loop
    signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
    for descriptor in (listening, client, wakeup):
        running.selector.register(descriptor, selectors.EVENT_READ)
    while True:
        for key, _ in running.selector.select():
            if key.fd == client:
                running.kill()
                os._exit(0)
            elif key.fd == wakeup:
                os.read(wakeup, 4096)
                running.report_ended()
            elif key.fd == listening:
                connection, _ = server.accept()
                received = _receive(connection)
                if received is None:
                    connection.close()
                    continue
                request, streams = received
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (server, connection, *running.connections.values()):
                        other.close()
                    for descriptor in (client, wakeup, wakeup_in):
                        os.close(descriptor)
                    running.selector.close()
                    _become(request, streams, warm)
                for stream in streams:
                    os.close(stream)
                running.add(pid, connection, request)
            else:
                running.leave(key.fd)


COMMANDS = ("cli", "check", "fixes", "render", "session", "verify", "view")
"""Our packages that commands load when they start, whole."""


def _load() -> tuple[Any, Any]:
    """Import and exercise what commands use; return the worker's trace function and greeting."""
    import lsp_server.server
    from aotlens.worker.warm_up import load

    assert lsp_server.server
    for name in ("rich.padding", "torch._inductor.compile_fx", "torch._inductor.codegen.cpp"):
        importlib.import_module(name)
    for name in COMMANDS:
        package = importlib.import_module(f"aotlens.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    warm = load()
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        finalizer.atexit = False  # torch takes 60 ms to remove its 188 libraries, at the end of each command
    return warm


def _receive(connection: socket.socket) -> tuple[Request, list[int]] | None:
    """Return a request and its streams; None from a client that left before it was complete."""
    data, streams, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    length = LENGTH.unpack(data)[0] if len(data) == LENGTH.size else 1
    body = b""
    while len(body) < length:
        part = connection.recv(length - len(body)) if data else b""
        if not part:
            for stream in streams:
                os.close(stream)
            return None
        body += part
    fields = json.loads(body)
    fields["words"] = tuple(fields["words"])
    return Request(**fields), streams


def _become(request: Request, streams: Sequence[int], warm: tuple[Any, Any]) -> NoReturn:
    """Turn the forked child into the command; never returns."""
    code = 1
    try:
        _settle(request, streams)
        code = _exit_code(request.words, warm)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # as at the end of Python
        code = 120
    finally:
        os._exit(code & 0xFF)


def _settle(request: Request, streams: Sequence[int]) -> None:
    if request.new_session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for name, output in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        assert isinstance(output, io.TextIOWrapper)
        output.reconfigure(line_buffering=name == "stderr" or output.isatty())
    own = _search_path(os.environ)
    os.environ.clear()
    os.environ.update(request.env)
    os.chdir(request.cwd)
    sys.path[:] = [*_search_path(request.env), *(path for path in sys.path if path and path not in own)]


def _search_path(environment: Any) -> list[str]:
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


def _exit_code(words: Sequence[str], warm: tuple[Any, Any]) -> int:
    """Run what the words name, like Python's main, and turn its exception into an exit code."""
    try:
        _run(words, warm)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:  # noqa: BLE001 - the last place, as Python's own main is
        shown = error.with_traceback(_without_our_frames(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 1
    return 0


def _run(words: Sequence[str], warm: tuple[Any, Any]) -> None:
    kind, *rest = words
    if kind == WORKER:
        _serve_traces(warm, *rest)
        return
    safe_path = kind == "-P"
    if safe_path:
        kind, *rest = rest
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv[:] = rest if kind == "-m" else [kind, *(rest[1:] if kind == "-c" else rest)]
    match kind:
        case "-m":
            if not safe_path:
                sys.path.insert(0, os.getcwd())
            _route_workers()
            if not hasattr(
                sys.modules.get(rest[0]), "__path__"
            ):  # a module that runs as a program is loaded anew
                sys.modules.pop(rest[0], None)
            runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        case "-c":
            if not safe_path:
                sys.path.insert(0, "")
            _route_workers()
            if sys.version_info >= (3, 13):  # tracebacks show the lines of such code from there on
                lines = rest[0].splitlines(keepends=True)
                linecache.cache["<string>"] = len(rest[0]), None, lines, "<string>"
            exec(compile(rest[0], "<string>", "exec"), module.__dict__)
        case _:
            sys.path.insert(0, str(Path(kind).absolute().parent))
            module.__file__ = str(Path(kind).absolute())
            exec(compile(Path(kind).read_bytes(), module.__file__, "exec"), module.__dict__)


def _serve_traces(warm: tuple[Any, Any], *arguments: str) -> NoReturn:
    from aotlens.session.held import question_trace
    from aotlens.worker.process import take_over_stdio
    from aotlens.worker.requests import PARALLEL
    from aotlens.worker.server import Server, serve

    trace, hello = warm
    reading, writing = take_over_stdio()
    parallel = int(arguments[0]) if arguments else PARALLEL
    server = Server(trace, writing, parallel, question_trace)
    sys.exit(serve(server, replace(hello, pid=os.getpid()), reading))


def _route_workers() -> None:
    """Make commands start the worker's server, and children that run scripts, here too, with torch loaded."""
    import aotlens.worker.client
    from tests.forked import Forking, worker_command

    aotlens.worker.client._server_command = lambda python: worker_command()
    subprocess.Popen = Forking  # type: ignore[misc]


def _without_our_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
