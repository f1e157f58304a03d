"""Reports from a log of torch that a project names: `trace = "logs/"` under `[tool.aotlens]`.

Invariant: a process of its own reads the log and runs no user code; the server gets a report.
"""

import subprocess
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from aotlens.model.codec import loads
from aotlens.model.report import Report
from aotlens.view.quantities import age, limit_text
from aotlens.worker.fit_command import cli_words

__all__ = ["NamedLog", "age_text", "named_log", "read_log"]

LIMIT_S = 120.0
MAX_FILES = 1_000


@dataclass(frozen=True, slots=True)
class NamedLog:
    """A log, and the project that names it."""

    path: Path
    folder: Path
    """Of the pyproject.toml: the files of the log are looked for here."""
    written_at: float
    """When the newest of its files was written, in seconds of the epoch."""


def named_log(file: str) -> NamedLog | None:
    """Return the log that the nearest pyproject.toml with a `[tool.aotlens]` names; None without one."""
    for folder in Path(file).resolve().parents:
        try:
            table = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["tool"]["aotlens"]
            path = folder / table["trace"]
            return NamedLog(path, folder, _written_at(path) if path.exists() else 0.0)
        except FileNotFoundError:
            continue
        except KeyError as missing:
            if missing.args == ("trace",):
                return None
        except (OSError, ValueError, TypeError):  # `aotlens check` reports the error
            return None
    return None


def _written_at(path: Path) -> float:
    files = sorted(path.iterdir())[:MAX_FILES] if path.is_dir() else ()
    return max(entry.stat().st_mtime for entry in (path, *files))


def read_log(log: NamedLog) -> Report | str:
    """Return its report, or the reason why there is none."""
    words = cli_words("inspect", "--full", "--format", "json", str(log.path))  # also small targets have hints
    try:
        done = subprocess.run(
            words,
            cwd=log.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"reading {log.path} took longer than {limit_text(LIMIT_S)}; name a single log of the folder"
    if done.returncode not in (0, 1):  # 1: it has findings
        return done.stderr.strip().rpartition("\n")[2] or f"{log.path} could not be read"
    return loads(done.stdout)


def age_text(log: NamedLog, report: Report) -> str:
    """Return the source of hints, and its age."""
    recorded = age(max(0.0, time.time() - log.written_at))
    return f"hints come from {log.path.name}, recorded {recorded} with torch {report.torch}"
