"""The main process's connection to the interpreter, which starts once and runs one graph after another.

Invariant: the interpreter ends with this process, and its folder of kernels with it; a graph that crashes it,
or takes too long, is an answer.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection, Pipe
from typing import Any

from aotlens.codegen.gpu.interpreter.operators import run_operator
from aotlens.codegen.gpu.interpreter.packing import packed, unpacked
from aotlens.codegen.gpu.interpreter.records import (
    Answer,
    Finding,
    Job,
    LaunchLocation,
    OperatorCall,
    UserLaunch,
    UserLaunchResult,
)

WORKER = "aotlens.codegen.gpu.interpreter.worker"
GRAPH_LIMIT_S = 600.0
"""Time limit for one graph."""


class Interpreter:
    """A process in which Triton interprets; concurrent graphs wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder = tempfile.mkdtemp(prefix="aotlens-interpreter-")
        self._process, self._connection = self._start()

    def run(self, job: Job, limit_s: float = GRAPH_LIMIT_S) -> Answer:
        """Run a graph; return its outputs, or a finding that says why there are none."""
        answer: Answer | str = self._answer(packed(job), limit_s)
        if not isinstance(answer, str):
            return answer
        return Answer(
            (), {}, job.random_state, (), 0, {}, Finding("not interpreted", LaunchLocation(""), "", answer)
        )

    def launch(self, launch: UserLaunch, limit_s: float = GRAPH_LIMIT_S) -> UserLaunchResult:
        """Launch a user's kernel; return what it writes, or a finding that says why nothing."""
        answer: UserLaunchResult | str = self._answer(packed(launch), limit_s)
        if not isinstance(answer, str):
            return answer
        return UserLaunchResult({}, Finding("not interpreted", LaunchLocation(launch.kernel), "", answer))

    def _answer(self, request: bytes, limit_s: float) -> Any:
        """Return the answer, or a sentence that says why there is none."""
        with self._lock:
            if self._process.poll() is not None:
                self._process, self._connection = self._start()
            try:
                return self._request(request, time.monotonic() + limit_s, limit_s)
            except (EOFError, ConnectionError):
                return f"the interpreter's process ended: exit code {self._process.wait()}"

    def _request(self, request: bytes, deadline: float, limit_s: float) -> Any:
        """Send a request and return the answer, after running the operators that the graph needs from this
        process."""
        self._connection.send_bytes(request)
        while self._connection.poll(max(0.0, deadline - time.monotonic())):
            received = unpacked(self._connection.recv_bytes())
            if not isinstance(received, OperatorCall):
                return received
            self._connection.send_bytes(packed(run_operator(received)))
        self._process.kill()
        return f"it took longer than {limit_s:g} s in the interpreter"

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """Start the interpreter's process; return it with our end of the socket."""
        ours, theirs = Pipe()
        environment = os.environ | {
            "TRITON_INTERPRET": "1",
            "TORCHINDUCTOR_CACHE_DIR": self._folder,
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",  # keep a real GPU from running what this process runs on the CPU
        }
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER, str(theirs.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_descriptor() else subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        return process, ours


def _has_descriptor() -> bool:
    """Return True if stderr is a file; under a test runner it may not be."""
    try:
        sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return False
    return True


_shared: list[Interpreter] = []


def interpreter() -> Interpreter:
    """Return this process's interpreter, which starts at the first call."""
    if not _shared:
        _shared.append(Interpreter())
        atexit.register(_shared[0].close)
    return _shared[0]
