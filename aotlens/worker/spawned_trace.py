"""The child of the spawning server: a fresh interpreter that loads torch, traces once, and exits.

Invariant: it ends when its standard input ends, so no child outlives its server, on any system.
"""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, NoReturn

from aotlens.process import show_logs
from aotlens.worker.codec import decode, encode
from aotlens.worker.outcome import (
    exit_after,
    prefer_to_be_killed,
    use_standard_streams,
    write_all,
    write_outcome,
)
from aotlens.worker.process import take_over_stdio
from aotlens.worker.protocol import Hello, TraceRequest
from aotlens.worker.requests import Trace

__all__ = ["main"]


def load() -> tuple[Trace, Hello]:
    """Return the real trace function; importing it takes seconds."""
    import platform

    import torch

    from aotlens.session.trace import trace

    return trace, Hello(os.getpid(), torch.__version__, platform.python_version())


def main(load: Callable[[], tuple[Trace, Hello]] = load) -> NoReturn:
    """Read the request from the first line of standard input; messages go to standard output.

    The first argument names the file for the stack of a process that has to be stopped.
    """
    reading, writing = take_over_stdio()
    use_standard_streams()
    exit_after(partial(_trace, reading, writing, load))


def _trace(reading: int, writing: int, load: Callable[[], tuple[Trace, Hello]]) -> None:
    requests = os.fdopen(reading, "rb")
    request = decode(requests.readline())
    assert isinstance(request, TraceRequest)
    threading.Thread(target=_leave_with_the_server, args=(requests,), daemon=True).start()
    trace, hello = load()
    write_all(writing, encode(hello))
    _dump_when_stopped(Path(sys.argv[1]), request.time_limit_s)
    show_logs()
    prefer_to_be_killed()
    write_outcome(request, trace, writing)


def _leave_with_the_server(requests: BinaryIO) -> None:
    requests.read()
    os._exit(1)


def _dump_when_stopped(file: Path, after_s: float) -> None:
    """Write the stack at a crash and at the time limit, after which the server ends the process."""
    dump = open(file, "w", encoding="utf-8")  # noqa: SIM115 (lives as long as the process)
    faulthandler.enable(dump, all_threads=False)
    faulthandler.dump_traceback_later(after_s, file=dump)


if __name__ == "__main__":
    main()
