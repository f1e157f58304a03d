"""Run one process and read what it prints, and the clocks that the observer noted at each line.

Invariant: time on the CPU is kept beside the wall's, so that a busy machine does not look like a slow
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

_STDERR_TAIL = 6000
"""Characters of stderr that are kept."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of stdout, and the clocks when it was printed; all 0 where they were not noted."""

    text: str
    wall_s: float = 0.0
    """Since the process started."""
    tree_cpu_s: float = 0.0
    """Time on the CPU of the process and of its children that have ended, in steps of 10 ms."""
    thread_cpu_s: float = 0.0
    """Time on the CPU of the thread that printed it, exact."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How one process ended and what it printed."""

    exit_code: int
    """Negative for a signal, as subprocess reports it."""
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
    """The clocks at each line; none where nothing was printed or nobody observed it."""
    if not clocks.exists():
        return []
    rows = [[float(number) for number in row.split()] for row in clocks.read_text().splitlines()]
    clocks.unlink()
    return rows


def _lines(text: str, rows: list[list[float]], start: float) -> tuple[Line, ...]:
    """Each line with its clocks; without them where other code printed too, past the observer."""
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
