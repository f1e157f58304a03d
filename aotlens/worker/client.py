"""The client of the worker: starts the server, submits traces, hands out futures.  Stdlib only.

Invariant: every submitted job's future gets exactly one `Answer`, also when the server cannot start, dies,
or is closed; a later submit starts a new server.
"""

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from aotlens.worker.codec import Message, ProtocolError, decode, encode
from aotlens.worker.protocol import (
    Answer,
    Cancel,
    Failure,
    FailureKind,
    Hello,
    Progress,
    TraceOptions,
    TraceRequest,
)

__all__ = ["Job", "WorkerClient"]

OnProgress = Callable[[Progress], None]

_CLOSE_GRACE_S = 3.0
_STDERR_LINES = 20
"""The last lines of the server's stderr, shown when it dies."""

_BOOTSTRAP = """\
import importlib.util, sys
if importlib.util.find_spec("aotlens") is None:
    sys.path.append({root!r})
from aotlens.worker.server import main
sys.exit(main())
"""
"""As `python -m aotlens.worker`, and it also finds an aotlens that is not installed for that interpreter."""


@dataclass(slots=True, eq=False)
class Job:
    """One submitted trace; its future's callbacks run on the client's reader thread."""

    id: int
    path: str
    future: "Future[Answer]"
    _client: "WorkerClient" = field(repr=False)
    _on_progress: OnProgress | None = field(default=None, repr=False)

    def cancel(self) -> None:
        """Stop the trace; the answer's failure is then of kind `cancelled`. No effect after the answer."""
        self._client._cancel(self)


class WorkerClient:
    """One server process, started on first use, and the jobs that wait for its answers."""

    def __init__(
        self,
        python: str | None = None,
        cwd: str | None = None,
        on_log: Callable[[str], None] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        """`python` is the interpreter that has torch and aotlens; `command` replaces the whole server."""
        self._command = list(command or _server_command(python or sys.executable))
        self._cwd = cwd
        self._on_log = on_log or (lambda line: None)
        self._lock = threading.RLock()
        self._ids = count(1)
        self._jobs: dict[int, Job] = {}
        self._server: _Server | None = None

    def warm(self) -> None:
        """Start the server in the background, so that a later submit finds torch loaded."""
        with self._lock:
            self._running_server()

    @property
    def hello(self) -> Hello | None:
        """What the server said of itself; None until it is warm."""
        server = self._server
        return server.hello if server is not None else None

    def submit(  # noqa: PLR0913 (the fields of a request, most with defaults)
        self,
        path: str | os.PathLike[str],
        qualname: str | None = None,
        argv: Iterable[str] = (),
        options: TraceOptions = TraceOptions(),  # noqa: B008 (frozen)
        on_progress: OnProgress | None = None,
        time_limit_s: float = 120.0,
        memory_limit_bytes: int | None = None,
        supersede: bool = False,
        fresh: bool = False,
    ) -> Job:
        """Trace a script's targets.

        `supersede` cancels older jobs for the same path; `fresh` traces again what the cache knows.
        """
        request = TraceRequest(
            next(self._ids),
            os.fspath(path),
            qualname,
            tuple(argv),
            options,
            time_limit_s,
            memory_limit_bytes,
            fresh,
        )
        job = Job(request.id, request.path, Future(), self, on_progress)
        job.future.set_running_or_notify_cancel()  # cancelling goes through the server
        with self._lock:
            older = [other for other in self._jobs.values() if supersede and other.path == job.path]
            self._jobs[job.id] = job
            self._send(request)
        for other in older:
            other.cancel()
        return job

    def close(self) -> None:
        """End the server and every child of it; jobs that still wait are answered as cancelled."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()
        self._answer_all("cancelled", "the client was closed before the trace ended")

    def __enter__(self) -> "WorkerClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cancel(self, job: Job) -> None:
        with self._lock:
            if job.id not in self._jobs:
                return
            if self.hello is not None:
                self._send(Cancel(job.id))
                return
        # The server is still loading torch and would read the message only then.
        failure = Failure("cancelled", f"the trace of {job.path} was cancelled", file=job.path)
        self._answer(Answer(job.id, None, failure))
        self._send(Cancel(job.id))

    def _send(self, message: Message) -> None:
        with self._lock:
            server = self._running_server()
        if server is not None:
            server.send(message)

    def _running_server(self) -> "_Server | None":
        if self._server is None or self._server.ended:
            try:
                self._server = _Server(self._command, self._cwd, self)
            except OSError as error:
                self._server = None
                self._answer_all("internal", f"could not start {self._command[0]}: {error.strerror}")
        return self._server

    # Called on the server's reader thread

    def _received(self, message: Message) -> None:
        match message:
            case Answer():
                self._answer(message)
            case Progress():
                job = self._jobs.get(message.id)
                if job is not None and job._on_progress is not None:
                    job._on_progress(message)

    def _answer(self, answer: Answer) -> None:
        with self._lock:
            job = self._jobs.pop(answer.id, None)
        if job is not None:
            job.future.set_result(answer)

    def _server_ended(self, server: "_Server", why: str) -> None:
        with self._lock:
            if self._server is not server:
                return
            self._server = None
        self._answer_all("internal", why)

    def _answer_all(self, kind: FailureKind, why: str) -> None:
        with self._lock:
            jobs, self._jobs = list(self._jobs.values()), {}
        for job in jobs:
            exit_code = 2 if kind == "cancelled" else 3
            failure = Failure(kind, f"{why} ({job.path})", file=job.path, exit_code=exit_code)
            job.future.set_result(Answer(job.id, None, failure))


class _Server:
    """A server process with the two threads that read its pipes."""

    def __init__(self, command: list[str], cwd: str | None, client: WorkerClient) -> None:
        self.hello: Hello | None = None
        self.ended = False
        self._client = client
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; the server ends when we close its pipe
        )
        self._writing = threading.Lock()
        self._log_thread = threading.Thread(target=self._read_log, name="aotlens-worker-log", daemon=True)
        self._log_thread.start()
        self._message_thread = threading.Thread(
            target=self._read_messages, name="aotlens-worker", daemon=True
        )
        self._message_thread.start()

    def send(self, message: Message) -> None:
        assert self._process.stdin is not None
        with self._writing:
            try:
                self._process.stdin.write(encode(message))
                self._process.stdin.flush()
            except (OSError, ValueError):  # it died: the reader thread sees that too and answers every job
                return

    def close(self) -> None:
        self.ended = True
        self._close_stdin()
        try:
            self._process.wait(_CLOSE_GRACE_S if self.hello is not None else 0.0)
        except subprocess.TimeoutExpired:  # busy loading torch, so it has no child yet, or stuck
            self._process.kill()
            self._process.wait()
        if threading.current_thread() is not self._message_thread:  # a future's callback may close the client
            self._message_thread.join(timeout=_CLOSE_GRACE_S)

    def _read_messages(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._receive(line)
        self.ended = True
        code = self._process.wait()
        self._close_stdin()
        self._log_thread.join(timeout=1.0)
        self._client._server_ended(self, self._obituary(code))

    def _receive(self, line: bytes) -> None:
        try:
            message = decode(line)
        except ProtocolError as error:
            self._client._on_log(f"ignored a line of the worker: {error}")
            return
        if isinstance(message, Hello):
            self.hello = message
        self._client._received(message)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip("\n")
                self._stderr.append(text)
                self._client._on_log(text)

    def _close_stdin(self) -> None:
        """Tells the server to end: it kills its children and leaves."""
        assert self._process.stdin is not None
        with self._writing, suppress(OSError):  # an OSError says that it is dead already
            self._process.stdin.close()

    def _obituary(self, code: int) -> str:
        what = "ended" if self.hello is not None else "could not start"
        last = next((line for line in reversed(self._stderr) if line.strip()), "no message")
        return f"the tracing process {what} (exit code {code}): {last}"


def _server_command(python: str) -> tuple[str, ...]:
    root = str(Path(__file__).resolve().parents[2])
    # -P: the user's folder must not hide modules of ours or of torch's; a script gets its own folder.
    return (python, "-P", "-c", _BOOTSTRAP.format(root=root))
