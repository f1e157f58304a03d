"""Reports from logs, for every command that takes a TARGET or a report.

Invariant: a path is taken for a log by its content alone; a Python file never is.
"""

from pathlib import Path

from aotlens.report.records import Report

__all__ = ["is_trace_path", "report_of_trace"]


def is_trace_path(path: str) -> bool:
    """Return True if the path is a log that torch wrote with TORCH_TRACE, or a folder with one."""
    if path.endswith(".py"):
        return False
    from aotlens.trace.reader import is_trace  # loaded only for what may be a log

    return is_trace(Path(path))


def report_of_trace(path: str, only: str | None = None) -> Report:
    """Return what the log says. Raises UserError where it cannot be read or has no such target."""
    from aotlens.trace.build import build_report
    from aotlens.trace.reader import open_trace

    return build_report(open_trace(Path(path)), f"aotlens inspect {path}", only)
