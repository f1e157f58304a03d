"""Run processes that the script spawns with `multiprocessing` under the engine: the parent's side.

Invariant: a process runs exactly what `multiprocessing` starts in it and keeps its exit code; if it is
killed, only its part of the report is lost.
"""

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import aotlens
from aotlens.options import CompileOptions

__all__ = ["Job", "load_job", "load_outcomes", "save_outcome", "spawning"]

_THEIRS = "from multiprocessing.spawn import spawn_main; spawn_main("
_JOB = "job"
_OUTCOME = ".outcome"


@dataclass(frozen=True, slots=True)
class Job:
    """What a spawned process needs to know of its session."""

    path: str
    """The script's path as the user wrote it."""
    options: CompileOptions
    verify: bool


@contextmanager
def spawning(job: Job) -> Iterator[Path]:
    """Run spawned processes under the engine within the block; they write their outcomes to the folder.

    The folder is private and lasts as long as the block, so only our own data is unpickled from it.
    """
    original = spawn.get_command_line
    with tempfile.TemporaryDirectory(prefix="aotlens-spawned-") as name:
        folder = Path(name)
        ours = _entry(folder)

        def command_line(**handles: Any) -> list[Any]:
            # The interpreter's path is bytes.
            return [
                word.replace(_THEIRS, ours, 1) if isinstance(word, str) else word
                for word in original(**handles)
            ]

        (folder / _JOB).write_bytes(pickle.dumps(job))
        spawn.get_command_line = command_line
        try:
            yield folder
        finally:
            spawn.get_command_line = original


def _entry(folder: Path) -> str:
    """Return the start of the program that replaces that of `multiprocessing`; the handles are appended."""
    installed = str(Path(aotlens.__file__).parent.parent)  # as the parent imports it, perhaps from a checkout
    load = f"import sys; sys.path.append({installed!r})"
    return f"{load}; from aotlens.session.processes.spawned import run_spawned; run_spawned({str(folder)!r}, "


def load_job(folder: str) -> Job:
    """Read what `spawning` wrote, in the spawned process."""
    job: Job = pickle.loads((Path(folder) / _JOB).read_bytes())
    return job


def save_outcome(folder: str, name: str, outcome: object) -> None:
    """Write the outcome for the parent atomically, in the spawned process."""
    path = Path(folder) / f"{name}{_OUTCOME}"
    writing = path.with_suffix(".writing")
    writing.write_bytes(pickle.dumps(outcome))
    writing.replace(path)


def load_outcomes(folder: Path) -> list[Any]:
    """Return the outcomes of all ended processes in the order of their ends, in the parent."""
    paths = sorted(folder.glob(f"*{_OUTCOME}"), key=lambda path: path.stat().st_mtime_ns)
    return [pickle.loads(path.read_bytes()) for path in paths]
