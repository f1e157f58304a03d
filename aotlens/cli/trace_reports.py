"""Reports from logs, for every command that takes a TARGET or a report.

Invariant: a path is taken for a log by its content alone; a Python file never is.
"""

import argparse
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.cli.terminal import say, write_data
from aotlens.report.records import Report

if TYPE_CHECKING:
    from aotlens.trace.build import Explain
    from aotlens.trace.reader import Trace

__all__ = ["add_map", "is_trace_path", "print_watched", "report_of_trace", "watched_trace"]

Follow = Callable[[Callable[[Report], object], threading.Event], None]
"""Calls back with each new report, until the event is set."""


def is_trace_path(path: str) -> bool:
    """Return True if the path is a log that torch wrote with TORCH_TRACE, or a folder with one."""
    if path.endswith(".py"):
        return False
    from aotlens.trace.reader import is_trace  # loaded only for what may be a log

    return is_trace(Path(path))


def add_map(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the files of a log are here."""
    parser.add_argument(
        "--map",
        dest="mappings",
        metavar="OLD=NEW",
        action="append",
        default=[],
        help="of a log: the folder OLD of its machine is NEW here; repeatable (default: by common path ends)",
    )


def report_of_trace(
    path: str, only: str | None = None, mappings: Sequence[str] = (), *, policy: str | None = None
) -> Report:
    """Return what the log says, with its lines in the current folder or where `mappings` leads.

    Raises UserError where the log cannot be read or has no such target, and for a mapping of another form.
    """
    from aotlens.trace.reader import open_trace

    explain = None if policy is None else _explain(policy)
    return _builder(path, only, mappings, explain)(open_trace(Path(path)))


def watched_trace(path: str, only: str | None, mappings: Sequence[str]) -> tuple[Report, Follow]:
    """Return what the log says now, and what calls back with a new report each time it has grown."""
    from aotlens.trace.follow import Follower, follow

    follower = Follower(Path(path))
    build = _builder(path, only, mappings, None)
    return build(follower.trace), lambda show, stop: follow(follower, build, show, stop)


def print_watched(path: str, only: str | None, mappings: Sequence[str]) -> None:
    """Print a line for each target, graph break and recompilation, as the log grows, until Ctrl-C."""
    from aotlens.trace.follow import new_lines

    report, follow = watched_trace(path, only, mappings)
    last: list[Report] = []

    def show(now: Report) -> None:
        for line in new_lines(last[-1] if last else None, now):
            write_data(f"{line}\n", None)
        last[:] = [now]

    show(report)
    try:
        follow(show, threading.Event())
    except KeyboardInterrupt:
        say("aotlens: stopped; `aotlens inspect` without --watch shows the whole report")


def _builder(
    path: str, only: str | None, mappings: Sequence[str], explain: "Explain | None"
) -> "Callable[[Trace], Report]":
    from aotlens.trace.build import build_report
    from aotlens.trace.source_lines import Sources
    from aotlens.trace.workspace import Workspace, parse_mapping

    workspace = Workspace(Path(), tuple(parse_mapping(mapping) for mapping in mappings))
    return lambda trace: build_report(trace, f"aotlens inspect {path}", only, Sources(workspace), explain)


def _explain(policy: str) -> "Explain | None":
    """Our solver under that policy, where torch is installed: a log can be read without."""
    if find_spec("torch") is None:
        return None
    from aotlens.trace.reasons import explained  # torch: 2 s

    return partial(explained, policy=policy)
