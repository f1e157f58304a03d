"""The reports of this session's answers, and those that are read from files.

Invariant: every report has a time; a source file that changed after it no longer fits the report's edits.
"""

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from aotlens.cli.log_reports import report_of_trace
from aotlens.cli.saved_reports import is_trace_path
from aotlens.errors import UserError
from aotlens.model.files import load_report
from aotlens.model.report import Report

__all__ = ["ReportStore", "Root", "StoredReport"]

MOST_REPORTS = 16
"""Reports of a session that stay in memory: the last ones used."""


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report, its name for the client, and the time when its sources were read."""

    name: str
    report: Report
    started: float
    """On the clock of the files' times."""


@dataclass(frozen=True, slots=True)
class Root:
    """The folder whose files a session may trace, read and edit."""

    folder: Path

    def inside(self, path: str) -> str:
        """Return the path unchanged; raises UserError for one that leads out of the folder."""
        resolved = (self.folder / path).resolve()
        if not resolved.is_relative_to(self.folder):
            raise UserError(
                f"{path} is outside of {self.folder}, the folder that this server may use; start it with"
                " `aotlens mcp --root FOLDER` for another one"
            )
        return path


@dataclass(slots=True)
class ReportStore:
    """Reports by name."""

    root: Root
    _by_name: OrderedDict[str, StoredReport] = field(default_factory=OrderedDict)
    _count: int = 0

    def add(self, report: Report, started: float) -> StoredReport:
        """Store a new report under its name: `trace-1`, `trace-2`, …"""
        self._count += 1
        stored = StoredReport(f"trace-{self._count}", report, started)
        self._by_name[stored.name] = stored
        while len(self._by_name) > MOST_REPORTS:
            self._by_name.popitem(last=False)
        return stored

    def get(self, name: str) -> StoredReport:
        """Return the report of an earlier answer, a file or a log; raises UserError if there is none."""
        stored = self._by_name.get(name)
        if stored is not None:
            self._by_name.move_to_end(name)
            return stored
        file = self.root.folder / self.root.inside(name)
        if not file.exists():
            raise UserError(
                f"no report {name}: it is neither a file nor one of the last {MOST_REPORTS} that this session"
                " made; retrace, or name a file that `aotlens inspect --format json -o FILE` wrote"
            )
        report = report_of_trace(name) if is_trace_path(str(file)) else load_report(file)
        return StoredReport(name, report, os.stat(file).st_mtime)
