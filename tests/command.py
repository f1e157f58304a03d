"""Run `aotlens` as its users do: with its own stdout, stderr, folder and exit code.

`aotlens` and `forked` run in a fork of a process that has torch loaded; `python` starts a process, which
costs a torch import, for tests of the start itself.
"""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.forked import start

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 170.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


def aotlens(*words: str | Path, cwd: Path | None = None) -> Ended:
    """Run `aotlens WORDS…`."""
    return forked("-m", "aotlens", *words, cwd=cwd)


def forked(*words: str | Path, cwd: Path | None = None) -> Ended:
    """Run `python WORDS…` in a process that has torch and our modules loaded already."""
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        streams = (nothing.fileno(), out.fileno(), err.fileno())
        folder = None if cwd is None else str(cwd)
        child = start([str(word) for word in words], streams, cwd=folder, env=environment())
        code = child.wait(LIMIT_S)
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read().decode(), err.read().decode())


def python(*words: str | Path, cwd: Path | None = None) -> Ended:
    """Run `python WORDS…` in a new process, in which nothing is loaded."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def without_carets(traceback: str) -> str:
    """Return a traceback without the lines that mark an expression: Python 3.13 marks more of them."""
    return re.sub(r"^ *[~^]+\n", "", traceback, flags=re.MULTILINE)


def environment() -> dict[str, str]:
    """Return an environment in which a command's texts and layout are the same everywhere."""
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "110", "NO_COLOR": "1"}
