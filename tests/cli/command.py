"""Runs `aotlens` as its users do: a process with its own stdout, stderr and exit code."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 170.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


def aotlens(*words: str | Path, cwd: Path | None = None) -> Ended:
    return python("-m", "aotlens", *words, cwd=cwd)


def python(*words: str | Path, cwd: Path | None = None) -> Ended:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "110", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
