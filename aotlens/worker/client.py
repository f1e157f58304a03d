"""The client of the worker: start the server, submit traces, return futures.  Stdlib only.

Invariant: every submitted job's future gets exactly one `Answer`, also if the server cannot start, dies or is
closed; a later submit starts a new server.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from aotlens.disk_cache import open_store
from aotlens.model.failure import Failure
from aotlens.worker.answers import AnswerStore, open_answer_store
from aotlens.worker.codec import Message, ProtocolError, decode, encode
from aotlens.worker.protocol import Answer, Cancel, Hello, Progress, TraceRequest

__all__ = ["SubmittedTrace", "WorkerClient"]

OnProgress = Callable[[Progress], None]

_CLOSE_GRACE_S = 3.0
_STDERR_LINES = 20
"""The last lines of the server's stderr, shown if it dies."""

_FROM_OUTSIDE = tuple(
    getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)
)
"""Signals that no fault of a process sends to itself."""

_BOOTSTRAP = """\
import importlib.util, sys
if importlib.util.find_spec("aotlens") is None:
    sys.path.append({root!r})
from aotlens.worker.start import main
sys.exit(main())
"""
"""Like `python -m aotlens.worker`, for an interpreter that may not have aotlens installed."""


@dataclass(slots=True, eq=False)
class SubmittedTrace:
    """One submitted trace; its future's callbacks run on the client's reader thread."""

    id: int
    path: str
    future: "Future[Answer]"
    _on_progress: OnProgress | None = field(default=None, repr=False)
    _server: "_Server | None" = field(default=None, repr=False)

    def cancel(self) -> None:
        """Stop the trace; the answer's failure is then of kind `cancelled`.  No effect after the answer."""
        if self._server is not None:
            self._server.cancel(self)


class WorkerClient:
    """One server process, started on first use, and the jobs that wait for its answers."""

    def __init__(  # noqa: PLR0913 (how a process is started, all with defaults)
        self,
        python: str | None = None,
        cwd: str | None = None,
        on_log: Callable[[str], None] | None = None,
        command: Sequence[str] | None = None,
        parallel: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`python` is the interpreter that has torch and aotlens; `command` replaces the whole server.

        `parallel` is the number of simultaneous traces; `env` adds to the environment of the server.
        """
        own = [] if parallel is None else [str(parallel)]
        self._command = list(command or (*_server_command(python or sys.executable), *own))
        self._cwd = cwd
        self._env = dict(env or {})
        self._on_log = on_log or (lambda line: None)
        self._lock = threading.Lock()
        self._ids = count(1)
        self._server: _Server | None = None

    def warm(self) -> None:
        """Start the server in the background, so that torch is loaded before a later submit."""
        with suppress(OSError):  # a submit fails in the same way, and its job reports it
            self._running_server()

    @property
    def hello(self) -> Hello | None:
        """Return the server's greeting; None until it is warm."""
        server = self._server
        return server.hello if server is not None else None

    def submit(self, request: TraceRequest, on_progress: OnProgress | None = None) -> SubmittedTrace:
        """Trace a script's targets."""
        request = replace(request, id=next(self._ids))
        job = SubmittedTrace(request.id, request.path, Future(), on_progress)
        job.future.set_running_or_notify_cancel()  # cancelling goes through the server
        try:
            while not self._running_server().submit(job, request):
                continue  # that server ended just now, so the next is a new one
        except OSError as error:
            what = f"could not start {self._command[0]}: {error.strerror}"
            job.future.set_result(Answer(job.id, None, Failure("internal", what, exit_code=3)))
        return job

    def close(self) -> None:
        """End the server and all its children; waiting jobs are answered as cancelled."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def answers_on_disk(self) -> AnswerStore | None:
        """Return the stored answers, shared with `aotlens inspect`; None if nothing may be stored."""
        return open_answer_store()

    def forget(self) -> None:
        """End the server, whose memory holds answers, and remove those on disk."""
        self.close()
        store = open_store()
        if store is not None:
            store.clear()

    def __enter__(self) -> "WorkerClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running_server(self) -> "_Server":
        with self._lock:
            if self._server is None or self._server.ended:
                self._server = _Server(self._command, self._cwd, self._on_log, self._env)
            return self._server


class _Server:
    """A server process, the jobs that wait for its answers, and the two threads that read its pipes."""

    def __init__(
        self, command: list[str], cwd: str | None, on_log: Callable[[str], None], env: Mapping[str, str]
    ) -> None:
        """Start the server.  Raises OSError if there is no such program."""
        self.hello: Hello | None = None
        self._output_ended = False
        self._closing = False
        self._on_log = on_log
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._jobs: dict[int, SubmittedTrace] = {}
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; the server ends when we close its pipe
        )
        self._log_thread = threading.Thread(target=self._read_log, name="aotlens-worker-log", daemon=True)
        self._log_thread.start()
        self._message_thread = threading.Thread(
            target=self._read_messages, name="aotlens-worker", daemon=True
        )
        self._message_thread.start()

    @property
    def ended(self) -> bool:
        """Whether it takes no job any more; the reader thread may not have seen the end yet."""
        return self._output_ended or self._process.poll() is not None

    def submit(self, job: SubmittedTrace, request: TraceRequest) -> bool:
        """Return True if the server took the job; a server that has ended does not."""
        with self._lock:
            if self.ended:
                return False
            self._jobs[job.id] = job
            job._server = self
        self._send(request)
        return True

    def cancel(self, job: SubmittedTrace) -> None:
        with self._lock:
            if job.id not in self._jobs:
                return
        if self.hello is None:  # it is still loading torch and would read the message only then
            self._answer(Answer(job.id, None, _cancelled(job, f"the trace of {job.path} was cancelled")))
        self._send(Cancel(job.id))

    def close(self) -> None:
        self._closing = True
        self._close_stdin()
        try:
            self._process.wait(_CLOSE_GRACE_S if self.hello is not None else 0.0)
        except subprocess.TimeoutExpired:  # busy loading torch, so it has no child yet, or stuck
            self._process.kill()
            self._process.wait()
        if threading.current_thread() is not self._message_thread:  # a future's callback may close the client
            self._message_thread.join(timeout=_CLOSE_GRACE_S)

    def _send(self, message: Message) -> None:
        assert self._process.stdin is not None
        with self._writing:
            try:
                self._process.stdin.write(encode(message))
                self._process.stdin.flush()
            except (OSError, ValueError):  # it died: the reader thread notices too and answers every job
                return

    def _close_stdin(self) -> None:
        """Make the server end: it kills its children and exits."""
        assert self._process.stdin is not None
        with self._writing, suppress(OSError):  # an OSError means that it is dead already
            self._process.stdin.close()

    # On the reader threads

    def _read_messages(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._receive(line)
        with self._lock:
            self._output_ended = True  # from here on a new job goes to a new server
            jobs, self._jobs = list(self._jobs.values()), {}
        code = self._process.wait()
        self._close_stdin()
        self._log_thread.join(timeout=1.0)
        for job in jobs:
            job.future.set_result(Answer(job.id, None, self._last_words(job, code)))

    def _receive(self, line: bytes) -> None:
        try:
            message = decode(line)
        except ProtocolError as error:
            self._on_log(f"ignored a line of the worker: {error}")
            return
        match message:
            case Hello():
                self.hello = message
            case Answer():
                self._answer(message)
            case Progress():
                self._report_progress(message)

    def _report_progress(self, progress: Progress) -> None:
        job = self._jobs.get(progress.id)
        if job is None or job._on_progress is None:
            return
        try:
            job._on_progress(progress)
        except Exception as error:  # noqa: BLE001 (theirs; this thread must live on to bring the answers)
            self._on_log(f"a progress callback raised {type(error).__name__}: {error}")

    def _answer(self, answer: Answer) -> None:
        with self._lock:
            job = self._jobs.pop(answer.id, None)
        if job is not None:
            job.future.set_result(answer)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip("\n")
                self._stderr.append(text)
                self._on_log(text)

    def _last_words(self, job: SubmittedTrace, code: int) -> Failure:
        if self._closing:
            return _cancelled(job, f"the client was closed before the trace of {job.path} ended")
        if -code in _FROM_OUTSIDE:
            cause = "most likely for want of memory" if code == -signal.SIGKILL else "by another process"
            message = f"the tracing process was {_how_it_ended(code)}, {cause}; retrace"
            return Failure("killed", message, file=job.path, exit_code=3)
        what = "ended" if self.hello is not None else "could not start"
        last = next((line for line in reversed(self._stderr) if line.strip()), "it left no message")
        message = f"the tracing process {what} ({_how_it_ended(code)}): {last}"
        return Failure("internal", message, file=job.path, exit_code=3)


def _how_it_ended(code: int) -> str:
    """Return the exit code of a process, or the signal that ended it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _cancelled(job: SubmittedTrace, message: str) -> Failure:
    return Failure("cancelled", message, file=job.path)


def _server_command(python: str) -> tuple[str, ...]:
    root = str(Path(__file__).resolve().parents[2])
    # -P: the user's folder must not hide modules of ours or of torch's; a script gets its own folder.
    return (python, "-P", "-c", _BOOTSTRAP.format(root=root))
