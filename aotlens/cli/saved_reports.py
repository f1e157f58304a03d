"""Reports from files: a saved report, or a log that torch wrote, in place of a TARGET; nothing runs."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.cli.targets import TargetName
from aotlens.cli.terminal import say, write_data
from aotlens.errors import TargetError, UserError
from aotlens.options import KERNEL_LIMIT_S
from aotlens.worker.protocol import TraceOptions

if TYPE_CHECKING:  # the terminal app starts without the report's records
    from aotlens.model.report import Report, Target
    from aotlens.trace.build import Extras, Recompile
    from aotlens.trace.logs.reader import Trace


__all__ = [
    "add_map",
    "is_report",
    "is_trace_path",
    "print_watched",
    "report_of_trace",
    "saved_report",
    "watched_trace",
    "what_ifs_of_trace",
]

Follow = Callable[[Callable[["Report"], object], threading.Event], None]
"""Calls back with each new report, until the event is set."""


def is_trace_path(path: str) -> bool:
    """Return True if the path is a log that torch wrote with TORCH_TRACE, or a folder with one."""
    if path.endswith(".py"):
        return False
    from aotlens.trace.logs.reader import is_trace  # loaded only for a possible log

    return is_trace(Path(path))


def add_map(parser: argparse.ArgumentParser) -> None:
    """Add the option that maps the files of a log to files here."""
    parser.add_argument(
        "--map",
        dest="mappings",
        metavar="OLD=NEW",
        action="append",
        default=[],
        help=(
            "for a log: the folder OLD on its machine is NEW here; repeatable (default: matched by path"
            " endings)"
        ),
    )


def report_of_trace(
    path: str,
    only: str | None = None,
    mappings: Sequence[str] = (),
    options: TraceOptions | None = None,
) -> Report:
    """Return the report of a log, with its lines in the current folder or where `mappings` leads.

    With `options`, our solver is asked under their policy, and with each of their what-ifs; kernels are
    compiled for their GPU.

    Raises UserError if the log cannot be read or has no such target, for an invalid mapping, and for a
    what-if that no target can answer.
    """
    from aotlens.trace.logs.reader import open_trace

    trace = open_trace(Path(path))
    if options is None:
        return _builder(path, only, mappings)(trace)
    if find_spec("torch") is None:
        if options.what_if:
            raise UserError("--what-if runs our solver, which needs torch; install torch here, or remove it")
        return _builder(path, only, mappings)(trace)
    from aotlens.trace.build import Extras
    from aotlens.trace.partition_reasons import with_reasons  # torch takes 2 s
    from aotlens.trace.what_ifs import SolverRequest

    request = SolverRequest(options.policy, options.what_if)
    extras = Extras(partial(with_reasons, request=request), *_recompile(options))
    report = _builder(path, only, mappings, extras)(trace)
    if options.gpu is not None and all(target.gpu_error for target in report.targets):
        raise UserError(f"--gpu {options.gpu}: {path} has no generated code for a GPU")
    request.check_answered(target.partition for target in report.targets)
    return report


def _recompile(options: TraceOptions) -> tuple[Recompile | None, str]:
    """Return the compiler of logged kernels for the GPU of the options, and its name; None without one."""
    if options.gpu is None:
        return None, ""
    from aotlens.codegen.gpu.records import GpuRequest
    from aotlens.codegen.gpu.targets import find_target
    from aotlens.trace.gpu.recompile import recompiled  # torch and Triton take 3 s

    request = GpuRequest(
        find_target(options.gpu), {}, options.gpu_texts, options.kernel_limit_s or KERNEL_LIMIT_S
    )
    return partial(recompiled, request=request), request.target.name


def what_ifs_of_trace(
    path: str, mappings: Sequence[str], options: TraceOptions
) -> Callable[[str, Target], Target]:
    """Return a function that adds our solver's answer about a change to a target of the log.

    It raises UserError for a change that is impossible, or that the target cannot answer.
    """

    def answer(change: str, target: Target) -> Target:
        graph = target.graph
        only = f"{graph.frame}/{graph.compilation}" if graph is not None else target.qualname
        asked = replace(options, what_if=(change,), gpu=None)
        report = report_of_trace(path, only, mappings, asked)
        own = next((each for each in report.targets if each.name == target.name), None)
        if own is None:
            raise UserError(f"{path} no longer has {target.name}")
        return replace(target, partition=own.partition)

    return answer


def watched_trace(path: str, only: str | None, mappings: Sequence[str]) -> tuple[Report, Follow]:
    """Return the current report of a log, and a function that calls back with each later one."""
    from aotlens.trace.logs.follow import Follower, follow

    follower = Follower(Path(path))
    build = _builder(path, only, mappings)
    return build(follower.trace), lambda show, stop: follow(follower, build, show, stop)


def print_watched(path: str, only: str | None, mappings: Sequence[str]) -> None:
    """Print a line for each target, graph break and recompilation, as the log grows, until Ctrl-C."""
    from aotlens.trace.logs.follow import new_lines

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
    path: str,
    only: str | None,
    mappings: Sequence[str],
    extras: Extras | None = None,
) -> Callable[[Trace], Report]:
    from aotlens.trace.build import NO_EXTRAS, build_report
    from aotlens.trace.source.source_lines import Sources
    from aotlens.trace.source.workspace import Workspace, parse_mapping

    workspace = Workspace(Path(), tuple(parse_mapping(mapping) for mapping in mappings))
    command = f"aotlens inspect {path}"
    return lambda trace: build_report(trace, command, only, Sources(workspace), extras or NO_EXTRAS)


OPTIONS_OF_TRACES = frozenset({"gpu_texts", "repeat_limit_s", "kernel_limit_s"})
"""Fields of `TraceOptions` for time limits and languages, which have no effect on a saved report."""
OPTIONS_OF_LOGS = frozenset({"policy", "what_if", "gpu"})
"""Fields that our solver uses on the joint graph of a log, and the GPU that its kernels are compiled for."""


def is_report(target: TargetName) -> bool:
    """Return True if TARGET names a report or a log, not a script."""
    return target.path.endswith(".json") or is_trace_path(target.path)


def saved_report(
    target: TargetName, argv: Sequence[str], options: TraceOptions, mappings: Sequence[str] = ()
) -> Report:
    """Return the report, or its targets of that name; raises UserError for options that need a trace.

    For a log, our solver is asked under the policy and its what-ifs, in addition to torch's choice.
    """
    is_log = is_trace_path(target.path)
    default = TraceOptions()
    shown = OPTIONS_OF_TRACES | OPTIONS_OF_LOGS if is_log else OPTIONS_OF_TRACES
    changed = [
        f"--{entry.name.replace('_', '-')}"
        for entry in fields(options)
        if entry.name not in shown and getattr(options, entry.name) != getattr(default, entry.name)
    ]
    if changed or argv:
        kind = "log" if is_log else "report"
        raise UserError(
            f"{target.path} is a {kind}, which is only shown: {', '.join([*changed, *argv])} needs a script"
            " to trace"
        )
    if is_log:
        return report_of_trace(target.path, target.qualname, mappings, options)
    from aotlens.model.files import load_report  # with all records

    report = load_report(target.path)
    if target.qualname is None:
        return report
    targets = tuple(each for each in report.targets if target.qualname in (each.name, each.qualname))
    if not targets:
        names = ", ".join(dict.fromkeys(each.qualname for each in report.targets)) or "none"
        raise TargetError(f"no target {target.qualname} in {target.path}; it has {names}")
    return replace(report, targets=targets)
