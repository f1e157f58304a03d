"""Run a command with torch's structured log enabled, otherwise as its caller would run it.

Invariant: the command has the caller's standard streams, terminal and folder; only the environment differs,
by `VARIABLES`.  Whatever ends this process ends the command first.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from aotlens.errors import UserError

__all__ = ["Recorded", "fresh_folder", "record"]

VARIABLES = {"INDUCTOR_PROVENANCE": "1"}
"""Set in addition to `TORCH_TRACE`: with provenance, the log has the source lines of each kernel."""

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
"""Signals that are sent to one process.  Ctrl-C is not among them: the terminal sends it to both."""
_KILLED = 128
"""Shells add this to the number of the signal that ended a command."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """How the command ended, and the logs that it wrote."""

    exit_code: int
    """As a shell reports it: 128 plus the number of the signal that ended it."""
    logs: tuple[Path, ...]
    """Empty if no process of the command compiled anything."""


def fresh_folder(parent: Path) -> Path:
    """Return a folder that does not exist yet, named after the time."""
    name = time.strftime("aotlens-trace-%Y%m%d-%H%M%S")
    paths = (parent / (name if number == 1 else f"{name}-{number}") for number in range(1, 1000))
    return next(path for path in paths if not path.exists())


def record(command: Sequence[str], folder: Path) -> Recorded:
    """Run the command to its end, with its logs in the folder.

    Raises UserError if the folder cannot hold them or the command cannot be started.
    """
    _prepare(folder)
    environment = os.environ | VARIABLES | {"TORCH_TRACE": str(folder.resolve())}
    with _Relay() as relay:
        try:
            process = subprocess.Popen(_words(command), env=environment)
        except OSError as error:
            if not any(folder.iterdir()):
                folder.rmdir()
            why = f"{error.strerror}; name a program, or a .py file"
            raise UserError(f"cannot start `{command[0]}`: {why}") from error
        relay.start(process)
        code = process.wait()
    return Recorded(code if code >= 0 else _KILLED - code, logs_in(folder))


def logs_in(folder: Path) -> tuple[Path, ...]:
    """Return the logs that torch wrote to the folder; a process that compiled nothing leaves an empty one."""
    paths = sorted(folder.glob("dedicated_log_torch_trace_*.log"))
    return tuple(path for path in paths if path.stat().st_size)


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the folder {folder}: {error.strerror}; choose another with -o"
        ) from error
    if logs_in(folder):
        raise UserError(
            f"{folder} has the logs of an earlier run, which would mix with the new ones; choose another"
            " folder with -o, or delete it"
        )


def _words(command: Sequence[str]) -> list[str]:
    """Return the command; a Python file that no shell could run is run by this Python."""
    if command[0].endswith(".py") and shutil.which(command[0]) is None and Path(command[0]).is_file():
        return [sys.executable, *command]
    return list(command)


class _Relay:
    """Forwards signals of this process to the command, which decides what they mean.

    It is active before the command starts: an early signal is forwarded once there is a command.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
        self._before = {number: signal.signal(number, self._forward) for number in numbers}
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda number, frame: None)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def start(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        while self._early:
            process.send_signal(self._early.pop(0))

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)
