"""A server without `fork`: each trace is a fresh interpreter, watched by threads.

Invariant: nothing here needs more than threads, pipes and `subprocess`, which every system has; only the main
thread changes a job, and the others pass it what they read.

A trace costs what importing torch takes, seconds; a fork of the warm server costs milliseconds.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

from aotlens.worker.captured_output import HeadAndTail
from aotlens.worker.codec import encode
from aotlens.worker.job import Job, Pipe, Stopped
from aotlens.worker.process import default_memory_limit_bytes, end_tree, resident_bytes, take_over_stdio
from aotlens.worker.protocol import Hello, TraceRequest
from aotlens.worker.requests import PARALLEL, Requests, decode_or_report

__all__ = ["PortableServer", "main", "serve"]

START_LIMIT_S = 300.0
"""Time limit for loading torch, before a trace's own limit begins."""
_DUMP_GRACE_S = 1.0
"""Time for a child to write its stack after its limit."""
_READ_REST_S = 1.0
"""Time to read the rest of a pipe after its child has ended; a process that outlives it may hold it open."""
_MEMORY_POLL_S = 0.1
_CHUNK_BYTES = 1 << 16

_CHILD = "import sys; sys.path.append({root!r}); from aotlens.worker.spawned_trace import main; main()"


@dataclass(slots=True, eq=False)
class _Child:
    """A running process, and the threads that read it."""

    process: "subprocess.Popen[bytes]"
    readers: tuple[threading.Thread, ...]
    dump: Path
    is_tracing: bool = False
    """Whether torch is loaded, so that the trace's time counts."""


def main() -> int:
    """Like `aotlens.worker.server.main`."""
    parallel = int(sys.argv[1]) if len(sys.argv) > 1 else PARALLEL
    reading, writing = take_over_stdio()
    return serve(reading, writing, child_command(), parallel)


def child_command() -> tuple[str, ...]:
    """Return the command of a trace's process, which finds the aotlens of this process."""
    root = str(Path(__file__).resolve().parents[2])
    return sys.executable, "-P", "-c", _CHILD.format(root=root)


def serve(reading: int, writing: int, command: Sequence[str], parallel: int = PARALLEL) -> int:
    """Answer requests from `reading` on `writing` until the client closes."""
    with tempfile.TemporaryDirectory(prefix="aotlens-worker-", ignore_cleanup_errors=True) as folder:
        server = PortableServer(writing, command, Path(folder), parallel)
        try:
            server.loop(reading)
        except BrokenPipeError:  # the client closed while we answered
            return 0
        finally:
            server.kill_everything()
    return 0


class PortableServer(Requests):
    """The loop over what the threads have read."""

    def __init__(self, writing: int, command: Sequence[str], folder: Path, parallel: int) -> None:
        super().__init__(writing, parallel)
        self._command = list(command)
        self._folder = folder
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._children: dict[int, _Child] = {}
        self._open = True

    def loop(self, reading: int) -> None:
        """Run until the client has closed its end."""
        import platform

        from aotlens.torch_versions import installed

        self.send(Hello(os.getpid(), installed() or "", platform.python_version()))
        threading.Thread(target=self._read_client, args=(reading,), daemon=True).start()
        while self._open:
            with suppress(Empty):
                self._events.get(timeout=_MEMORY_POLL_S if self._jobs else None)()
            self._enforce_limits()
            self._start_waiting()

    def kill_everything(self) -> None:
        for child in self._children.values():
            end_tree(child.process)

    # The client, on its thread

    def _read_client(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as requests:
            for line in requests:
                self._events.put(lambda line=line: self._handle_lines((line,)))  # type: ignore[misc]
        self._events.put(self._close)

    def _close(self) -> None:
        self._open = False

    # The children

    def _start(self, request: TraceRequest) -> None:
        """Start a child for the request, and read its pipes from now on."""
        dump = self._folder / f"{request.id}.txt"
        process = subprocess.Popen(
            [*self._command, str(dump)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # its own group, which is ended with it
        )
        limit = request.memory_limit_bytes or default_memory_limit_bytes()
        pipes = Pipe(-1, bytearray()), Pipe(-1, HeadAndTail()), Pipe(-1, HeadAndTail())
        job = Job(request, process.pid, *pipes, memory_limit_bytes=limit)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        readers = (
            threading.Thread(target=self._read_messages, args=(job, process.stdout), daemon=True),
            threading.Thread(target=_read_output, args=(job.output, process.stderr), daemon=True),
        )
        self._jobs[process.pid] = job
        self._children[process.pid] = _Child(process, readers, dump)
        for reader in readers:
            reader.start()
        threading.Thread(target=self._await_end, args=(job, process), daemon=True).start()
        with suppress(OSError):  # it died at once; its end is answered like any other
            process.stdin.write(encode(request))
            process.stdin.flush()

    def _kill(self, job: Job) -> None:
        end_tree(self._children[job.pid].process)

    def _read_messages(self, job: Job, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                self._events.put(lambda line=line: self._message(job, line))  # type: ignore[misc]

    def _message(self, job: Job, line: bytes) -> None:
        message = decode_or_report(line)
        if message is None:
            return
        child = self._children.get(job.pid)
        if isinstance(message, Hello) and child is not None:
            child.is_tracing = True
            job.began = time.monotonic()
            return
        self._receive(job, message)

    def _await_end(self, job: Job, process: "subprocess.Popen[bytes]") -> None:
        """Wait for the child's end, which is handled after all that it wrote; runs on a thread of its own."""
        code = process.wait()
        end_tree(process)  # its remaining processes
        for reader in self._children[job.pid].readers:
            reader.join(timeout=_READ_REST_S)
        self._events.put(lambda: self._ended(job, code))

    def _ended(self, job: Job, code: int) -> None:
        child = self._children.pop(job.pid)
        assert child.process.stdin is not None
        with suppress(OSError):
            child.process.stdin.close()
        if child.dump.exists():
            assert isinstance(job.dump.data, HeadAndTail)
            job.dump.data.write(child.dump.read_bytes())
            child.dump.unlink(missing_ok=True)
        self._finish(job, code)

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        for job in self._jobs.values():
            if job.stopped is not None:
                continue
            child = self._children[job.pid]
            job.peak_bytes = max(job.peak_bytes, resident_bytes(job.pid))
            limit_s = job.request.time_limit_s + _DUMP_GRACE_S if child.is_tracing else START_LIMIT_S
            if job.peak_bytes > job.memory_limit_bytes:
                job.stopped = Stopped.MEMORY
            elif now >= job.began + limit_s and job.outcome is None:
                job.stopped = Stopped.TIMEOUT
            else:
                continue
            self._kill(job)


def _read_output(pipe: Pipe, stream: IO[bytes]) -> None:
    assert isinstance(pipe.data, HeadAndTail)
    with stream:
        while chunk := stream.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]
            pipe.data.write(chunk)
