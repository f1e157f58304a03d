"""Run one process and read its output, with the observer's clocks for each line.

Invariant: CPU time is recorded in addition to wall time, so that a busy machine does not look like a slow
compiler; and nothing that the process started outlives the call.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["Line", "Ran", "run_process"]

_STDERR_TAIL = 30_000
"""Characters of stderr that are stored."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of stdout, and the clocks when it was printed; all 0 if they were not recorded."""

    text: str
    wall_s: float = 0.0
    """Since the start of the process."""
    tree_cpu_s: float = 0.0
    """CPU time of the process and of its children that have ended, in steps of 10 ms."""
    thread_cpu_s: float = 0.0
    """CPU time of the thread that printed it, exact."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How one process ended, and its output."""

    exit_code: int
    """Negative for a signal, like subprocess."""
    timed_out: bool
    wall_s: float
    lines: tuple[Line, ...]
    stderr_tail: str

    @property
    def stdout(self) -> tuple[str, ...]:
        return tuple(line.text for line in self.lines)


def run_process(command: Sequence[str], env: Mapping[str, str], folder: Path, limit_s: float) -> Ran:
    """Run the command in the folder; a process that exceeds the limit is killed with all it started."""
    clocks = folder / ".clocks"
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**env, "CORPUS_CLOCKS": str(clocks)},
            cwd=folder,
            start_new_session=True,
        )
        try:
            process.wait(limit_s)
            timed_out = False
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _kill_group(process.pid)
            exit_code = process.wait()
        wall_s = time.monotonic() - start
        lines = _lines(_text(output), _rows(clocks), start)
        tail = _text(errors)[-_STDERR_TAIL:]
    return Ran(exit_code, timed_out, wall_s, lines, tail)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _rows(clocks: Path) -> list[list[float]]:
    """Return the clocks of each line; empty if nothing was printed or observed."""
    if not clocks.exists():
        return []
    rows = [[float(number) for number in row.split()] for row in clocks.read_text().splitlines()]
    clocks.unlink()
    return rows


def _lines(text: str, rows: list[list[float]], start: float) -> tuple[Line, ...]:
    """Return each line with its clocks, or without them if other code printed too, unobserved."""
    texts = text.splitlines()
    if len(rows) != len(texts):
        return tuple(map(Line, texts))
    return tuple(
        Line(line, wall - start, tree, thread) for line, (wall, tree, thread) in zip(texts, rows, strict=True)
    )


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # all have ended
        return
