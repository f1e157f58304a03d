"""The warm server: torch is loaded and exercised once, then one child is forked per trace.

Invariant: there is one thread, so a fork copies a whole program; every request gets exactly one answer; when
the client's pipe closes, every child dies with the server.

It uses `os.fork`, not `multiprocessing`'s forkserver: both start a child from a warm single-threaded process,
but our own fork saves a process (350 MB of torch), a socket protocol and its resource tracker, and gives us
direct children with their exit status, process group and death signal.
"""

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from aotlens.process import adopt_orphans, kill_group
from aotlens.worker import child
from aotlens.worker.captured_output import HeadAndTail
from aotlens.worker.codec import decode
from aotlens.worker.held import CAN_HOLD, Held, control_pair
from aotlens.worker.job import Job, Pipe, Stopped, WriteEnds, open_pipes
from aotlens.worker.process import child_pids, default_memory_limit_bytes, resident_bytes, take_over_stdio
from aotlens.worker.protocol import Hello, TraceRequest
from aotlens.worker.requests import PARALLEL, QuestionTrace, Requests, Trace, take_lines

__all__ = ["Server", "main", "serve"]

_CHUNK_BYTES = 1 << 16
_MEMORY_POLL_S = 0.1
_DUMP_GRACE_S = 1.0
"""Time for a child to begin to write its stack before it is killed."""
_DUMP_QUIET_S = 0.3
"""The stack is complete after this time without more of it."""
_AFTER_OUTCOME_S = 2.0
"""Time for a child to exit after its outcome."""


def main() -> int:
    """Warm up, then serve the client on stdin and stdout until it closes them.

    The first argument, if any, is the number of simultaneous traces.
    """
    from aotlens.session.held import question_trace  # imports torch
    from aotlens.worker.warm_up import load  # imports torch

    parallel = int(sys.argv[1]) if len(sys.argv) > 1 else PARALLEL
    reading, writing = take_over_stdio()
    trace, hello = load()
    return serve(Server(trace, writing, parallel, question_trace), hello, reading)


def serve(server: "Server", hello: Hello, reading: int) -> int:
    """Answer requests from `reading` until the client closes."""
    server.send(hello)
    try:
        server.loop(reading)
    except BrokenPipeError:  # the client closed while we answered
        return 0
    finally:
        server.kill_everything()
    return 0


class Server(Requests):
    """The loop over the client's pipe, the children's pipes and the children's deaths."""

    def __init__(
        self,
        trace: Trace,
        writing: int,
        parallel: int = PARALLEL,
        question_trace: QuestionTrace = lambda: None,
    ) -> None:
        super().__init__(writing, parallel)
        self._trace = trace
        self._question_trace = question_trace
        self._held: Held | None = None
        """The newest trace that is held."""
        self._selector = selectors.DefaultSelector()
        self._open = True
        self._input = bytearray()
        self._wakeup_in = -1
        """The descriptor that a signal writes to."""
        adopt_orphans()  # strays, and the forks of a held process: only its parent can wait for a process

    def loop(self, reading: int) -> None:
        """Run until the client has closed its end."""
        self._selector.register(reading, selectors.EVENT_READ, lambda: self._read_client(reading))
        self._watch_children()
        while self._open:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fd in self._selector.get_map():  # an earlier event of this round may have closed it
                    key.data()
            self._enforce_limits()
            self._start_waiting()

    def kill_everything(self) -> None:
        for job in self._jobs.values():
            kill_group(job.pid)
        self._release()
        self._kill_strays()

    # The client

    def _read_client(self, reading: int) -> None:
        data = os.read(reading, _CHUNK_BYTES)
        if not data:
            self._open = False
            return
        self._input += data
        self._handle_lines(take_lines(self._input))

    # The children

    def _watch_children(self) -> None:
        wakeup, wakeup_in = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(wakeup_in, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # its arrival wakes the loop
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
        self._wakeup_in = wakeup_in
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._reap(wakeup))

    def _start(self, request: TraceRequest) -> None:
        """Ask a child that holds the trace, or fork one, and read its pipes from now on."""
        readers, writing = open_pipes()
        asked = self._ask_held(request, writing)
        pid, control = self._fork(request, readers, writing) if asked is None else (asked, None)
        writing.close()
        limit = request.memory_limit_bytes or default_memory_limit_bytes()
        job = Job(request, pid, *readers, memory_limit_bytes=limit, control=control)
        self._jobs[pid] = job
        for pipe in job.pipes:
            self._selector.register(pipe.fd, selectors.EVENT_READ, self._reader(job, pipe))
        if asked is not None:
            signal.raise_signal(signal.SIGCHLD)  # it may have ended before it was known here

    def _fork(
        self, request: TraceRequest, readers: Iterable[Pipe], writing: WriteEnds
    ) -> tuple[int, socket.socket | None]:
        """Fork a child that traces; return its id and, if it may be held, our end of its socket."""
        parent_pid = os.getpid()
        mine, theirs = control_pair() if request.hold and CAN_HOLD else (None, None)
        pid = os.fork()
        if pid == 0:
            self._forget(readers)
            if mine is not None:
                mine.close()
            child.run(child.Work(request, self._trace, self._question_trace, theirs), writing, parent_pid)
        if theirs is not None:
            theirs.close()
        return pid, mine

    def _ask_held(self, request: TraceRequest, writing: WriteEnds) -> int | None:
        """Return the process in which the held trace answers a question; None if it cannot."""
        if self._held is None or not self._held.answers(request):
            return None
        pid = self._held.ask(request, writing)
        if pid is None:
            self._release()
        return pid

    def _release(self) -> None:
        """End the held process, also one that no longer answers."""
        held, self._held = self._held, None
        if held is not None:
            held.control.close()
            kill_group(held.pid)

    def _kill(self, job: Job) -> None:
        kill_group(job.pid)

    def _forget(self, readers: Iterable[Pipe]) -> None:
        """Close, in the child, what belongs to the server, so that its client and its jobs see their ends."""
        signal.set_wakeup_fd(-1)  # from Python 3.12 on, asyncio has done so in each child
        os.close(self._wakeup_in)
        for pipe in readers:
            os.close(pipe.fd)
        for key in self._selector.get_map().values():
            os.close(key.fd)
        self._selector.close()
        os.close(self._writing)
        sockets = [job.control for job in self._jobs.values()]
        for control in (*sockets, self._held.control if self._held is not None else None):
            if control is not None:
                control.close()

    def _reader(self, job: Job, pipe: Pipe) -> Callable[[], None]:
        def read() -> None:
            if _read_once(pipe) == 0:
                self._selector.unregister(pipe.fd)
            elif pipe is job.result:
                self._take_results(job)
            elif pipe is job.dump and job.kill_at is not None and job.stopped is not None:  # its stack
                job.kill_at = time.monotonic() + _DUMP_QUIET_S

        return read

    def _take_results(self, job: Job) -> None:
        assert isinstance(job.result.data, bytearray)
        for line in take_lines(job.result.data):
            self._receive(job, decode(line))
            if job.outcome is not None:
                job.kill_at = time.monotonic() + _AFTER_OUTCOME_S

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        for job in self._jobs.values():
            if job.kill_at is not None:
                if now >= job.kill_at:
                    kill_group(job.pid)
                    job.kill_at = now + _DUMP_GRACE_S
                continue
            job.peak_bytes = max(job.peak_bytes, resident_bytes(job.pid))
            if job.peak_bytes > job.memory_limit_bytes:
                _request_stack(job, Stopped.MEMORY)
            elif now >= job.deadline:
                _request_stack(job, Stopped.TIMEOUT)

    def _patience_s(self) -> float | None:
        if not self._jobs:
            return None
        nearest = min(job.deadline for job in self._jobs.values()) - time.monotonic()
        return max(0.0, min(nearest, _MEMORY_POLL_S))

    def _reap(self, wakeup: int) -> None:
        os.read(wakeup, _CHUNK_BYTES)
        for pid, job in list(self._jobs.items()):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                kill_group(pid)  # its remaining processes; the id is not reused before waitpid
                _, status = os.waitpid(pid, 0)
                self._close(job)
                self._hold(job)
                self._finish(job, os.waitstatus_to_exitcode(status))
        if not self._jobs:
            self._kill_strays()

    def _hold(self, job: Job) -> None:
        """Hold the process that outlives a child, in place of an older one."""
        if job.control is None:
            return
        held = Held.from_child(job.request, job.control, job.outcome)
        if held is not None:
            self._release()
            self._held = held

    def _close(self, job: Job) -> None:
        """Read the rest of a child's pipes, and close them."""
        for pipe in job.pipes:
            while _read_once(pipe):
                continue
            if pipe.fd in self._selector.get_map():
                self._selector.unregister(pipe.fd)
        self._take_results(job)
        for pipe in job.pipes:
            os.close(pipe.fd)

    def _kill_strays(self) -> None:
        """End processes that a child started in groups of their own; `adopt_orphans` made them ours."""
        held = self._held.pid if self._held is not None else None
        for pid in child_pids(os.getpid()):
            if pid == held:
                continue
            kill_group(pid)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _request_stack(job: Job, why: Stopped) -> None:
    job.stopped = why
    job.kill_at = time.monotonic() + _DUMP_GRACE_S
    os.kill(job.pid, child.DUMP_SIGNAL)


def _read_once(pipe: Pipe) -> int:
    """Return the number of bytes read; 0 at the pipe's end, or if nothing is available."""
    try:
        data = os.read(pipe.fd, _CHUNK_BYTES)
    except BlockingIOError:
        return 0
    if isinstance(pipe.data, HeadAndTail):
        pipe.data.write(data)
    else:
        pipe.data += data
    return len(data)
