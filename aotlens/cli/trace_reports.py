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
from aotlens.errors import UserError
from aotlens.model.report import Report

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
    path: str,
    only: str | None = None,
    mappings: Sequence[str] = (),
    *,
    policy: str | None = None,
    what_if: Sequence[str] = (),
) -> Report:
    """Return what the log says, with its lines in the current folder or where `mappings` leads.

    Our solver is asked under `policy`, and under that policy with each change of `what_if`.

    Raises UserError where the log cannot be read or has no such target, for a mapping of another form, and
    for a what-if that no target can answer.
    """
    from aotlens.trace.reader import open_trace

    trace = open_trace(Path(path))
    if what_if:
        return _weighed(lambda explain: _builder(path, only, mappings, explain)(trace), policy, what_if)
    explain = None if policy is None else _explain(policy)
    return _builder(path, only, mappings, explain)(trace)


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


def _weighed(build: "Callable[[Explain], Report]", policy: str | None, what_if: Sequence[str]) -> Report:
    """Return the report with the answers to what-ifs; raises UserError for one that has none."""
    if find_spec("torch") is None:
        raise UserError("--what-if asks our solver, which needs torch; install torch here, or leave it out")
    from aotlens.trace.reasons import explained  # torch: 2 s
    from aotlens.trace.what_ifs import SolverRequest

    request = SolverRequest(policy or "min-cut", tuple(what_if))
    report = build(partial(explained, request=request))
    request.check_answered(target.partition for target in report.targets)
    return report


def _explain(policy: str) -> "Explain | None":
    """Our solver under that policy, where torch is installed: a log can be read without."""
    if find_spec("torch") is None:
        return None
    from aotlens.trace.reasons import explained  # torch: 2 s
    from aotlens.trace.what_ifs import SolverRequest

    return partial(explained, request=SolverRequest(policy))
