"""Reports of a log that torch wrote with TORCH_TRACE: of all its targets, of one, or again and again.

Invariant: a log is opened once. Its targets are read on demand, and nothing of it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.cli.terminal import say, write_data
from aotlens.errors import UserError
from aotlens.options import KERNEL_LIMIT_S
from aotlens.view.logs import listed_text
from aotlens.worker.protocol import TraceOptions

if TYPE_CHECKING:  # the terminal app starts without the report's records
    from aotlens.model.log import ListedTarget
    from aotlens.model.report import Report, Target
    from aotlens.trace.build import Extras, Recompile
    from aotlens.trace.listing import Limits
    from aotlens.trace.logs.reader import Trace
    from aotlens.trace.source.workspace import Workspace
    from aotlens.trace.what_ifs import SolverRequest

__all__ = [
    "LogReports",
    "findings_of_trace",
    "first_look",
    "print_watched",
    "report_of_trace",
    "watched_trace",
]

Follow = Callable[[Callable[["Report"], object], threading.Event], None]
"""Calls back with each new report, until the event is set."""


class LogReports:
    """Makes reports of one log, with its lines in the current folder or where `mappings` leads.

    With `options`, our solver is asked under their policy, and with each of their what-ifs; kernels are
    compiled for their GPU. Both need torch, without which they are left out.

    Raises UserError if the log cannot be read, and for an invalid mapping.
    """

    def __init__(self, path: str, mappings: Sequence[str] = (), options: TraceOptions | None = None) -> None:
        from aotlens.trace.logs.reader import open_trace

        self.path = path
        self.options = options
        self._trace = open_trace(Path(path))
        self._workspace = _workspace(mappings)

    def report(self, only: str | None = None, limits: Limits | None = None) -> Report:
        """Return the report, or the part about one target.

        Targets beyond the limits are listed only.

        Raises UserError if the log has no such target, and for a what-if that no target can answer.
        """
        options = self.options
        extras, request = _extras(options, limits)
        report = _builder(self.path, only, self._workspace, extras)(self._trace)
        if request is None or options is None:
            return report
        if options.gpu is not None and all(target.gpu_error for target in report.targets):
            raise UserError(f"--gpu {options.gpu}: {self.path} has no generated code for a GPU")
        unread = listed_text(report.log)
        hint = f"{unread}; {self.path}::NAME or ::ID asks one" if unread else ""
        request.check_answered((target.partition for target in report.targets), hint)
        if options.what_if and hint:
            say(f"aotlens: --what-if: {hint}")
        return report

    def read(self, listed: ListedTarget) -> tuple[Target, ...]:
        """Return a target that was only listed; several if its graph is split.

        Raises UserError if the log no longer has it, or has nothing of it but a backward graph.
        """
        options = None if self.options is None else replace(self.options, what_if=(), gpu=None)
        extras, _ = _extras(options)
        variants = self._variants(listed.compile_id, extras)
        targets = next(islice(variants, listed.variant, None), ())
        if not targets:
            raise UserError(f"{self.path} has no forward graph of {listed.compile_id}")
        return targets

    def what_if(self, change: str, target: Target) -> Target:
        """Return the target with our solver's answer about a change.

        Raises UserError for a change that is impossible, or that the target cannot answer.
        """
        asked = replace(self.options or TraceOptions(), what_if=(change,), gpu=None)
        extras, request = _extras(asked)
        graph = target.graph
        compile_id = f"{graph.frame}/{graph.compilation}" if graph is not None else None
        same = (each for targets in self._variants(compile_id, extras) for each in targets)
        own = next((each for each in same if (each.name, each.stages) == (target.name, target.stages)), None)
        if own is None:
            raise UserError(f"{self.path} no longer has {target.name}")
        if request is not None:
            request.check_answered([own.partition])
        return replace(target, partition=own.partition)

    def _variants(self, compile_id: str | None, extras: Extras) -> Iterator[tuple[Target, ...]]:
        """Yield the targets of each compilation with this id, or of all."""
        from aotlens.trace.build import build_targets
        from aotlens.trace.listing import summaries
        from aotlens.trace.source.source_lines import Sources

        for summary in summaries(self._trace, compile_id):
            yield build_targets(summary, Sources(self._workspace), extras)


def report_of_trace(
    path: str,
    only: str | None = None,
    mappings: Sequence[str] = (),
    options: TraceOptions | None = None,
    limits: Limits | None = None,
) -> Report:
    """Return the report of a log, as `LogReports` makes it."""
    return LogReports(path, mappings, options).report(only, limits)


def findings_of_trace(path: str, only: str | None, mappings: Sequence[str]) -> Report:
    """Return the report of many targets, each without its graphs and its code.

    Raises UserError as `LogReports` does.
    """
    from aotlens.trace.build import Extras
    from aotlens.trace.listing import CHECKED
    from aotlens.trace.logs.reader import open_trace

    extras = Extras(limits=CHECKED, drops_graphs=True)
    return _builder(path, only, _workspace(mappings), extras)(open_trace(Path(path)))


def first_look() -> Limits:
    """Return the limits of a front end that reads on when asked."""
    from aotlens.trace.listing import FIRST_LOOK  # loaded only for a log

    return FIRST_LOOK


def _extras(
    options: TraceOptions | None, limits: Limits | None = None
) -> tuple[Extras, SolverRequest | None]:
    """Return what is read of the log and what torch adds, with the request to our solver if it is asked."""
    from aotlens.trace.build import Extras
    from aotlens.trace.listing import SOME

    limits = limits or SOME
    if options is None:
        return Extras(limits=limits), None
    if find_spec("torch") is None:
        if options.what_if:
            raise UserError("--what-if runs our solver, which needs torch; install torch here, or remove it")
        return Extras(limits=limits), None
    from aotlens.trace.partition_reasons import with_reasons  # torch takes 2 s
    from aotlens.trace.what_ifs import SolverRequest

    request = SolverRequest(options.policy, options.what_if)
    return Extras(partial(with_reasons, request=request), *_recompile(options), limits), request


def _recompile(options: TraceOptions) -> tuple[Recompile | None, str]:
    """Return the compiler of logged kernels for the GPU of the options, and its name; None without one."""
    if options.gpu is None:
        return None, ""
    from aotlens.codegen.gpu.records import GpuRequest
    from aotlens.model.gpus.names import find_target
    from aotlens.trace.gpu.recompile import recompiled  # torch and Triton take 3 s

    request = GpuRequest(
        find_target(options.gpu), {}, options.gpu_texts, options.kernel_limit_s or KERNEL_LIMIT_S
    )
    return partial(recompiled, request=request), request.target.name


def watched_trace(path: str, only: str | None, mappings: Sequence[str]) -> tuple[Report, Follow]:
    """Return the current report of a log, and a function that calls back with each later one."""
    from aotlens.trace.logs.follow import Follower, follow

    follower = Follower(Path(path))
    build = _builder(path, only, _workspace(mappings), _extras(None, first_look())[0])
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
    workspace: Workspace,
    extras: Extras,
) -> Callable[[Trace], Report]:
    from aotlens.trace.build import build_report
    from aotlens.trace.source.source_lines import Sources

    command = f"aotlens inspect {path}"
    return lambda trace: build_report(trace, command, only, Sources(workspace), extras)


def _workspace(mappings: Sequence[str]) -> Workspace:
    """Return the files of the current folder, whose names are listed once; raises for an invalid mapping."""
    from aotlens.trace.source.workspace import Workspace, parse_mapping

    return Workspace(Path(), tuple(parse_mapping(mapping) for mapping in mappings))
