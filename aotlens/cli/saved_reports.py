"""Reports from files: a saved report, or a log that torch wrote, in place of a TARGET; nothing runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.cli.targets import TargetName
from aotlens.errors import TargetError, UserError
from aotlens.worker.protocol import TraceOptions

if TYPE_CHECKING:  # the terminal app starts without the report's records
    from aotlens.model.report import Report
    from aotlens.trace.listing import Limits

__all__ = ["add_map", "is_report", "is_trace_path", "saved_report"]


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


HARMLESS_OPTIONS = frozenset({"gpu_texts", "repeat_limit_s", "kernel_limit_s"})
"""Fields of `TraceOptions` for time limits and languages: without effect on a saved report, so allowed."""
OPTIONS_OF_LOGS = frozenset({"policy", "what_if", "gpu"})
"""Fields that our solver uses on the joint graph of a log, and the GPU that its kernels are compiled for."""


def is_report(target: TargetName) -> bool:
    """Return True if TARGET names a report or a log, not a script."""
    return target.path.endswith(".json") or is_trace_path(target.path)


def saved_report(
    target: TargetName,
    argv: Sequence[str],
    options: TraceOptions,
    mappings: Sequence[str] = (),
    limits: Limits | None = None,
) -> Report:
    """Return the report, or its targets of that name; raises UserError for options that need a trace.

    For a log, our solver is asked under the policy and its what-ifs, in addition to torch's choice, about the
    targets within the limits.
    """
    is_log = is_trace_path(target.path)
    default = TraceOptions()
    allowed = HARMLESS_OPTIONS | OPTIONS_OF_LOGS if is_log else HARMLESS_OPTIONS
    rejected = [
        f"--{entry.name.replace('_', '-')}"
        for entry in fields(options)
        if entry.name not in allowed and getattr(options, entry.name) != getattr(default, entry.name)
    ]
    if rejected or argv:
        kind = "log" if is_log else "report"
        raise UserError(
            f"{target.path} is a {kind}, which is only shown: {', '.join([*rejected, *argv])} needs a script"
            " to trace"
        )
    if is_log:
        from aotlens.cli.log_reports import report_of_trace  # loaded only for a log

        return report_of_trace(target.path, target.qualname, mappings, options, limits)
    from aotlens.model.files import load_report  # with all records

    report = load_report(target.path)
    if target.qualname is None:
        return report
    targets = tuple(each for each in report.targets if target.qualname in (each.name, each.qualname))
    if not targets:
        names = ", ".join(dict.fromkeys(each.qualname for each in report.targets)) or "none"
        raise TargetError(f"no target {target.qualname} in {target.path}; it has {names}")
    return replace(report, targets=targets)
