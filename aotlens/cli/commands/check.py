"""`aotlens check PATH…`: diagnostics of every target that has an example, for CI."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from aotlens.check.files import SourceFile, find_files
from aotlens.check.findings import check_traces
from aotlens.check.settings import SEVERITIES, Settings, check_codes, settings_for
from aotlens.check.steps import find_step_files, measure_steps
from aotlens.check.tracing import OnDone, Traced, trace_files
from aotlens.cli.log_reports import findings_of_trace
from aotlens.cli.options import add_limits, count, limits_of, output_file, seconds
from aotlens.cli.progress import waiting
from aotlens.cli.saved_reports import add_map, is_trace_path
from aotlens.cli.targets import TargetName, add_gpu, add_policy, check_gpu, policy_of
from aotlens.cli.terminal import say, write_data
from aotlens.diagnostics.checked import Checked
from aotlens.errors import UserError
from aotlens.options import BACKENDS
from aotlens.process import cores
from aotlens.view.quantities import counted

RENDERERS = {"text": "findings_text", "json": "findings_json", "sarif": "sarif", "github": "github"}
"""The module of `aotlens.render` that writes each format."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="a Python file, a folder of Python files, or a TORCH_TRACE log (LOG::NAME for one function)",
    )
    parser.add_argument("--format", choices=tuple(RENDERERS), default="text", help="default: %(default)s")
    parser.add_argument(
        "-o", dest="output", metavar="FILE", type=output_file, help="write to this file instead of stdout"
    )
    for name, does in (("select", "report only"), ("ignore", "do not report")):
        parser.add_argument(
            f"--{name}",
            metavar="CODES",
            help=(f"{does} these codes, for example AL1 or AL301,AL801; replaces the setting"),
        )
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        help="the lowest severity that makes the exit code 1 (default: warning)",
    )
    add_limits(parser)
    parser.add_argument(
        "--jobs", metavar="N", type=count, default=cores(), help="files at a time (default: one per core)"
    )
    parser.add_argument("--time-limit", metavar="SECONDS", type=seconds, help="per file (default: 120)")
    parser.add_argument("--fresh", action="store_true", help="retrace even if nothing has changed")
    parser.add_argument("--backend", choices=BACKENDS, help="code generation (default: eager)")
    parser.add_argument("--dynamic", action="store_true", help="trace with symbolic sizes")
    add_policy(parser)
    add_gpu(parser)
    add_map(parser)


def run(arguments: argparse.Namespace) -> int:
    overrides = _Overrides(arguments)
    _check_script_arguments(arguments)
    argv = tuple(arguments.argv)
    logs = [path for path in arguments.paths if is_trace_path(TargetName.parse(path).path)]
    files_with_examples = find_files([path for path in arguments.paths if path not in logs])
    files = tuple(
        replace(file, settings=overrides.over(file.settings), argv=argv) for file in files_with_examples
    )
    steps = tuple(
        replace(file, settings=overrides.over(file.settings), argv=argv)
        for file in find_step_files([path for path in arguments.paths if path not in logs])
    )
    for gpu in {file.settings.options.gpu for file in (*files, *steps)}:
        check_gpu(gpu)
    with _progress(len(files)) as on_done:
        traced = trace_files(files, arguments.jobs, arguments.fresh, on_done)
    with _progress(len(steps), "measuring the step of") as on_done:
        traced = (*traced, *measure_steps(steps, arguments.fresh, on_done))
    traced = (*traced, *(_read_log(path, overrides, arguments.mappings) for path in logs))
    for file_trace in traced:
        if file_trace.failure is not None and file_trace.failure.traceback and arguments.format == "text":
            say(file_trace.failure.traceback.rstrip())
    checked = check_traces(traced)
    _show(checked, arguments)
    return checked.exit_code


def _read_log(path: str, overrides: "_Overrides", mappings: list[str]) -> Traced:
    """Return the contents of a log as if its targets had been traced here.

    The settings are those of the current folder, where the lines of a log are looked up too.
    """
    log = TargetName.parse(path)
    file = SourceFile(path, "", overrides.over(settings_for(str(Path.cwd() / Path(log.path).name))), ())
    with waiting(f"reading {log}"):
        report = findings_of_trace(log.path, log.qualname, mappings)
    if report.incomplete is not None:
        say(f"aotlens: incomplete: {report.incomplete}")
    return Traced(file, report, None)


def _check_script_arguments(arguments: argparse.Namespace) -> None:
    """Raise UserError for arguments that could belong to any of several scripts."""
    paths, words = arguments.paths, arguments.argv
    if not words or (len(paths) == 1 and not os.path.isdir(paths[0])):
        return
    several = f"{paths[0]} is a folder" if len(paths) == 1 else f"there are {len(paths)} paths"
    raise UserError(
        f"`{words[0]}` is not an option of `aotlens check`, and arguments need a single script: {several}"
    )


class _Overrides:
    """Options of the command line; each replaces the setting of its name."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._options: dict[str, object] = {
            name: value
            for name, value in (("backend", arguments.backend), ("gpu", arguments.gpu))
            if value is not None
        }
        if arguments.dynamic:
            self._options["dynamic"] = True
        if arguments.policy or arguments.memory_budget is not None:
            self._options["policy"] = str(policy_of(arguments))
        self._settings: dict[str, object] = {
            name: check_codes(tuple(filter(None, text.replace(" ", "").split(","))), f"--{name}")
            for name, text in (("select", arguments.select), ("ignore", arguments.ignore))
            if text is not None
        }
        self._budget = limits_of(arguments)
        settings = {"fail_on": arguments.fail_on, "time_limit_s": arguments.time_limit}
        self._settings |= {name: value for name, value in settings.items() if value is not None}

    def over(self, settings: Settings) -> Settings:
        options = replace(settings.options, **self._options)  # type: ignore[arg-type]  # argparse checked them
        budget = settings.budget.with_limits(self._budget)
        return replace(settings, options=options, budget=budget, **self._settings)  # type: ignore[arg-type]  # same


@contextmanager
def _progress(count: int, doing: str = "tracing") -> Iterator[OnDone]:
    """Show how many files are done and the last one, on a terminal only."""
    done = 0
    with waiting(f"{doing} {counted(count, 'file')}") as show:

        def finished(file: SourceFile) -> None:
            nonlocal done
            done += 1
            show(f"{done} done", file.path)

        yield finished


def _show(checked: Checked, arguments: argparse.Namespace) -> None:
    from aotlens.render.findings_text import print_findings, summary  # rich takes 0.1 s

    if arguments.format == "text" and arguments.output is None:
        from rich.console import Console  # rich too

        print_findings(checked, Console())
    else:
        renderer = import_module(f"aotlens.render.{RENDERERS[arguments.format]}")
        write_data(renderer.render(checked), arguments.output)
    if checked.files:
        say(f"aotlens: {summary(checked)}")
    else:
        say(
            "aotlens: nothing to check: no function has an example; write `# aotlens: example f32[8, 16]`"
            " above a def"
        )
