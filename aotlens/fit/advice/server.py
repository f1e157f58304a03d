"""The child process that loads torch and other libraries once, and runs each trial in a fork of its own.

Invariant: no user code runs in this process, so every trial starts from the same state.  Trials run side by
side; whoever asks for them limits how many.
"""

import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from aotlens.session.job_folder import PRINTED

__all__ = ["CHILDREN", "import_libraries", "main"]

CHILDREN = {
    "fit": "aotlens.fit.child",
    "names": "aotlens.fit.advice.names",
    "training": "aotlens.fit.advice.training",
}
"""The module whose `main` runs a job, by the kind of the job."""
LIBRARIES = (
    "torch._dynamo",
    "torch._dynamo.backends.inductor",
    "torch.export._trace",
    "torch.utils.flop_counter",
    "aotlens.frontends.compile",
    "ortools.graph.python.max_flow",
)
"""What a trial would load when it compiles; none of these asks for a GPU."""
POLL_S = 0.01


def main() -> int:
    """Run a job, or import libraries, for each line of stdin.

    Each is answered by a line with its number and exit code, None for a timeout.
    """
    answers = os.dup(sys.stdout.fileno())
    for name in (*LIBRARIES, *CHILDREN.values()):
        importlib.import_module(name)
    forks, received = Forks(), b""
    try:
        while True:
            if select.select([0], [], [], POLL_S if forks.running else None)[0]:
                text = os.read(0, 1 << 16)
                if not text:
                    return 0
                *lines, received = (received + text).split(b"\n")
                for request in map(json.loads, lines):
                    if "libraries" in request:
                        _answer(answers, request["number"], import_libraries(request["libraries"]))
                    else:
                        forks.start(request)
            for number, code in forks.ended():
                _answer(answers, number, code)
    finally:  # nobody waits for what still runs, or the user has interrupted this process
        forks.kill()


def _answer(answers: int, number: int, code: int | None) -> None:
    os.write(answers, json.dumps((number, code)).encode() + b"\n")


def import_libraries(names: Sequence[str]) -> int:
    """Import modules of installed packages into this process; return 1 if trials may differ with them."""
    streams = {number: os.dup(number) for number in (1, 2)}
    none = os.open(os.devnull, os.O_RDWR)
    try:
        for number in streams:
            os.dup2(none, number)
        for name in names:
            importlib.import_module(name)
    except Exception:  # noqa: BLE001 (whatever a package raises: the script imports it itself, and says so)
        return 1
    finally:
        for number, stream in streams.items():
            os.dup2(stream, number)
            os.close(stream)
        os.close(none)
    return int(torch.cuda.is_initialized())  # a fork could not use the GPU then


@dataclass(slots=True)
class Forks:
    """The trials that run, by their process: each one's number and deadline."""

    running: dict[int, tuple[int, float]] = field(default_factory=dict)

    def start(self, request: dict[str, Any]) -> None:
        pid = os.fork()
        if not pid:
            _become(request["kind"], request["folder"])
        with suppress(OSError):  # whichever of the two processes comes first makes the group
            os.setpgid(pid, pid)
        self.running[pid] = (request["number"], time.monotonic() + request["limit_s"])

    def ended(self) -> list[tuple[int, int | None]]:
        """Return the number and exit code of each trial that has ended, and end those that take too long."""
        answers: list[tuple[int, int | None]] = []
        for pid, (number, deadline) in tuple(self.running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                answers.append((number, os.waitstatus_to_exitcode(status)))
                del self.running[pid]
            elif time.monotonic() > deadline:
                self._kill(pid)
                answers.append((number, None))
        return answers

    def kill(self) -> None:
        for pid in tuple(self.running):
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del self.running[pid]


def _become(kind: str, folder: str) -> NoReturn:
    """Run the job in this fork; never returns."""
    code = 1
    try:
        os.setpgid(0, 0)  # data loaders end with it
        none = os.open(os.devnull, os.O_RDWR)
        printed = os.open(Path(folder, PRINTED), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number, stream in enumerate((none, printed, none)):
            os.dup2(stream, number)
        code = importlib.import_module(CHILDREN[kind]).main(folder)
        sys.stdout.flush()
    finally:
        os._exit(code & 0xFF)


if __name__ == "__main__":
    sys.exit(main())
