"""The child's side of a trace: from the fork to the one outcome line.

Invariant: the process exits through `os._exit` here, whatever the user's code does; it never returns into the
server's loop.
"""

import faulthandler
import os
import resource
import signal
import sys
import traceback
from typing import NoReturn

from aotlens.process import die_with_parent, show_logs
from aotlens.worker.codec import encode
from aotlens.worker.job import WriteEnds
from aotlens.worker.outcome import outcome_of, prefer_to_be_killed, use_standard_streams, write_all
from aotlens.worker.protocol import TraceRequest
from aotlens.worker.requests import Trace

__all__ = ["DUMP_SIGNAL", "run"]

DUMP_SIGNAL = signal.SIGUSR1
"""Makes the child write its stack before it is killed."""


def run(request: TraceRequest, trace: Trace, pipes: WriteEnds, parent_pid: int) -> NoReturn:
    """Trace, write the outcome, and exit."""
    status = 1
    try:
        _settle(pipes, parent_pid)
        outcome = outcome_of(request, trace, pipes.result)
        sys.stdout.flush()
        sys.stderr.flush()
        write_all(pipes.result, encode(outcome))
        status = 0
    except BaseException:  # noqa: BLE001 (nothing is left to tell it to: stderr is part of the answer)
        traceback.print_exc()
    finally:
        os._exit(status)


def _settle(pipes: WriteEnds, parent_pid: int) -> None:
    """Set up the process like that of an ordinary script, in its own group."""
    os.setsid()
    die_with_parent(parent_pid)
    os.close(signal.set_wakeup_fd(-1))
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(pipes.output, 1)
    os.dup2(pipes.output, 2)
    os.close(pipes.output)
    use_standard_streams()
    faulthandler.enable(pipes.dump, all_threads=False)
    faulthandler.register(DUMP_SIGNAL, pipes.dump, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    show_logs()
    prefer_to_be_killed()
