"""The last result of `aotlens fit` for each script, on disk.  Stdlib only.

Invariant: a result is returned only while the script and every file that its run read are unchanged, so a
front end that shows it runs nothing.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aotlens._version import __version__
from aotlens.disk_cache import Store, digest, open_store
from aotlens.errors import ReportError
from aotlens.model.codec import decode, encode
from aotlens.model.report import Report
from aotlens.worker.answers import changed_since, file_digest

__all__ = ["FitResults", "FitRun", "open_fit_results", "with_files"]

KIND = "fit-results"


@dataclass(frozen=True, slots=True)
class FitRun:
    """One run of a script by `aotlens fit`."""

    path: str
    argv: tuple[str, ...] = ()
    gpu: str | None = None
    """The GPU as the user named it."""
    files: tuple[str, ...] = ()
    """Absolute paths of the script, its modules and the files that it read."""
    started: float = 0.0
    """When it started, on the clock of the files."""
    is_distributed: bool = False
    """Whether it ran as one of several ranks."""


def open_fit_results() -> "FitResults | None":
    """Return the user's results; None where nothing may be stored."""
    store = open_store()
    return None if store is None else FitResults(store)


@dataclass(frozen=True, slots=True)
class FitResults:
    """Reads and writes the last result of a script and its arguments; its spans have absolute paths."""

    store: Store

    def find(self, path: str, argv: Sequence[str] = ()) -> tuple[Report, str | None] | None:
        """Return the last result and the GPU that it is for; None without one, or if a file has changed.

        A result of single ranks is returned only where the script was not run on one device.
        """
        plain = self._entry(_key(path, argv))
        return plain if plain is not None else self._entry(_key(path, argv, is_distributed=True))

    def _entry(self, key: str) -> tuple[Report, str | None] | None:
        entry: Any = self.store.get(KIND, key)
        if not isinstance(entry, dict) or not isinstance(entry.get("read"), dict):
            return None
        if any(file_digest(file) != known for file, known in entry["read"].items()):
            return None
        try:
            return decode(entry["report"]), entry["gpu"]
        except (ReportError, KeyError):
            return None

    def add(self, run: FitRun, report: Report) -> None:
        """Store a result, unless a file has changed since the run started.

        It lacks the single allocations: tens of thousands for a large model, which no front end shows.
        """
        if report.fit is None or not run.files or any(changed_since(file, run.started) for file in run.files):
            return
        read = {file: file_digest(file) for file in run.files}
        shown = replace(report, fit=replace(report.fit, allocations=()))
        entry = {"read": read, "gpu": run.gpu, "report": _renamed(encode(shown), os.path.abspath)}
        self.store.put(KIND, _key(run.path, run.argv, run.is_distributed), entry)


def with_files(report: Report, rename: Callable[[str], str]) -> Report:
    """Return the report with another path in each span."""
    return decode(_renamed(encode(report), rename))


def _renamed(data: Any, rename: Callable[[str], str]) -> Any:
    """Return encoded data with the file of each span renamed."""
    if isinstance(data, list):
        return [_renamed(item, rename) for item in data]
    if not isinstance(data, dict):
        return data
    is_span = "file" in data and "end_col" in data
    return {
        key: rename(value) if is_span and key == "file" else _renamed(value, rename)
        for key, value in data.items()
    }


def _key(path: str, argv: Sequence[str], is_distributed: bool = False) -> str:
    return digest(__version__, "ranks" if is_distributed else "", os.path.realpath(path), *argv)
