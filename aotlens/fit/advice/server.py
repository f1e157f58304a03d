"""The child process that loads torch once, and runs each trial of a script in a fork of its own.

Invariant: no user code runs in this process, so every trial starts from the same state.
"""

import importlib
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from aotlens.session.job_folder import PRINTED

__all__ = ["CHILDREN", "main"]

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
    """Run one job for each line of stdin, and write one line with its exit code; None for a timeout."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    for name in (*LIBRARIES, *CHILDREN.values()):
        importlib.import_module(name)
    for line in sys.stdin:
        code = _run(json.loads(line))
        answers.write(json.dumps(code) + "\n")
        answers.flush()
    return 0


def _run(request: dict[str, Any]) -> int | None:
    pid = os.fork()
    if not pid:
        _become(request["kind"], request["folder"])
    with suppress(OSError):  # whichever of the two processes comes first makes the group
        os.setpgid(pid, pid)
    deadline = time.monotonic() + request["limit_s"]
    status: int | None = None
    try:
        while status is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
            ended, answer = os.waitpid(pid, os.WNOHANG)
            status = answer if ended else None
    finally:
        if status is None:  # it takes too long, or the user has interrupted this process
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return None if status is None else os.waitstatus_to_exitcode(status)


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
