"""A command in a pseudo-terminal of the benchmarks' size, timed until it has drawn a text."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence

COLUMNS, LINES = 146, 42
PATIENCE_S = 30.0


def time_until(text: str, command: Sequence[str]) -> float:
    """Return the seconds from the start of a command until its terminal has received `text`; end it then.

    Raises:
        RuntimeError: the command ended, or half a minute passed, without it.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    variables = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, start_new_session=True
    )
    os.close(theirs)
    try:
        return _read_until(text.encode(), ours, began)
    finally:
        process.send_signal(signal.SIGTERM)
        _drain(ours)
        process.wait()
        os.close(ours)


def _read_until(text: bytes, terminal: int, began: float) -> float:
    received = b""
    while time.perf_counter() - began < PATIENCE_S:
        try:
            received += os.read(terminal, 1 << 16)
        except OSError:  # Linux answers so once the command has ended
            break
        if text in received:
            return time.perf_counter() - began
    raise RuntimeError(f"the terminal did not receive {text!r}: {received[-500:]!r}")


def _drain(terminal: int) -> None:
    """Read what a command still writes, so that it can end."""
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # its end, as above
        return
