"""`aotlens diff A B` and `aotlens diff --git REV..REV TARGET`: what changed between two traces."""

import argparse
import json
from collections.abc import Iterator, Sequence

from aotlens.check.settings import settings_for
from aotlens.cli.log_reports import report_of_trace
from aotlens.cli.options import add_limits, limits_of, output_file, seconds
from aotlens.cli.saved_reports import add_map, is_trace_path
from aotlens.cli.targets import TargetName, add_compile_options, add_gpu, check_gpu, policy_of
from aotlens.cli.terminal import say, write_data
from aotlens.cli.trace_target import trace_target
from aotlens.compare.difference import ReportChange, report_change
from aotlens.compare.side_by_side import side_by_side
from aotlens.diagnostics.budgets import Budget, over_budget, over_step_budget
from aotlens.errors import UserError
from aotlens.git_revisions import parse_range
from aotlens.model.codec import encode_record
from aotlens.model.files import load_report
from aotlens.model.report import Diagnostic, Report
from aotlens.model.source import Span
from aotlens.worker.protocol import TraceOptions

SCHEMA = "aotlens.diff/1"
FORMATS = ("text", "json", "markdown", "html")
TIME_LIMIT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="A B | TARGET",
        nargs="+",
        help="two report files or TORCH_TRACE logs, or TARGETs to trace; with --git, one TARGET",
    )
    parser.add_argument(
        "--git",
        metavar="REVISIONS",
        help="trace TARGET at two revisions: main..HEAD, main...HEAD (from their merge base), main (to the"
        " working tree)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="html is one page with the lines of both side by side (default: %(default)s)",
    )
    parser.add_argument(
        "-o", dest="output", metavar="FILE", type=output_file, help="write to this file instead of stdout"
    )
    add_limits(parser)
    parser.add_argument(
        "--time-limit", metavar="SECONDS", type=seconds, default=TIME_LIMIT_S, help="default: %(default)g"
    )
    add_compile_options(parser, backend="eager")
    add_gpu(parser)
    add_map(parser)


def most_scripts(options: Sequence[str]) -> int:
    """Return how many words name reports or targets; a script's arguments follow."""
    return 1 if any(option.partition("=")[0] == "--git" for option in options) else 2


def run(arguments: argparse.Namespace) -> int:
    old, new = _reports(arguments)
    for report in (old, new):
        if report.incomplete is not None and (report.fit is not None or report.log is not None):
            say(f"aotlens: warning: `{report.command}` is incomplete: {report.incomplete}")
    over = tuple(_exceeded_budgets(new, limits_of(arguments)))
    if arguments.format == "html":
        _write_page(old, new, arguments)
    else:
        _show(report_change(old, new), over, arguments)
    for diagnostic in over:
        say(f"aotlens: {diagnostic.code}: {diagnostic.message}")
    return 1 if over else 0


def _reports(arguments: argparse.Namespace) -> tuple[Report, Report]:
    if arguments.git is None:
        if len(arguments.what) != 2:
            raise UserError(
                "name two report files, as `aotlens inspect --format json -o FILE` or `aotlens fit --format"
                " json -o FILE` write them, or --git REVISIONS and a TARGET"
            )
        if arguments.argv and not any(TargetName.parse(path).path.endswith(".py") for path in arguments.what):
            raise UserError(
                f"`{arguments.argv[0]}` follows two report files, but only a script takes arguments"
            )
        old, new = (_report(path, arguments) for path in arguments.what)
        return old, new
    if len(arguments.what) != 1:
        raise UserError("--git takes one TARGET, and traces it at both revisions")
    from aotlens.cli.revision_traces import trace_revisions  # only with --git

    target, options = TargetName.parse(arguments.what[0]), _options(arguments)
    return trace_revisions(arguments.git, target, arguments.argv, options, arguments.time_limit)


def _options(arguments: argparse.Namespace) -> TraceOptions:
    check_gpu(arguments.gpu)
    return TraceOptions(
        backend=arguments.backend,
        dynamic=arguments.dynamic,
        policy=str(policy_of(arguments)),
        gpu=arguments.gpu,
        gpu_texts=(),
    )


def _report(what: str, arguments: argparse.Namespace) -> Report:
    """Return a report from a file or a log; a script is traced."""
    target = TargetName.parse(what)
    if is_trace_path(target.path):
        from aotlens.trace.listing import COMPARED  # loaded only for a log

        return report_of_trace(target.path, target.qualname, arguments.mappings, limits=COMPARED)
    if not target.path.endswith(".py"):
        return load_report(what)
    traced = trace_target(target, arguments.argv, _options(arguments), arguments.time_limit)
    if traced.failure is not None:
        if traced.failure.traceback:
            say(traced.failure.traceback.rstrip())
        raise UserError(traced.failure.message, kind=traced.failure.kind)
    assert traced.report is not None
    return traced.report


def _exceeded_budgets(report: Report, limits: Budget) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each budget that a target or the step of the new report exceeds.

    Budgets are set in the project's settings; the command's options limit targets only, and take precedence.
    """
    for target in report.targets:
        file = _file_of(target.span)
        budget = settings_for(file).budget_of(file, target.qualname).with_limits(limits)
        yield from over_budget(target, budget)
    if report.fit is not None:
        file = _file_of(report.fit.at.span)
        yield from over_step_budget(report.fit, settings_for(file).budget_of(file))


def _file_of(span: Span | None) -> str:
    """Return the file whose project has the settings; the current folder for an unknown location."""
    return span.file if span is not None else "."


def _show(change: ReportChange, over: tuple[Diagnostic, ...], arguments: argparse.Namespace) -> None:
    if arguments.format == "json":
        data = {
            "schema": SCHEMA,
            **encode_record(change),
            "over_budget": [encode_record(diagnostic) for diagnostic in over],
        }
        write_data(json.dumps(data, indent=2, ensure_ascii=False) + "\n", arguments.output)
    elif arguments.format == "markdown":
        from aotlens.render.markdown import difference_markdown

        write_data(difference_markdown(change, over), arguments.output)
    else:
        _show_text(change, over, arguments.output)


def _write_page(old: Report, new: Report, arguments: argparse.Namespace) -> None:
    from aotlens.render.html.comparison import comparison_page  # only with --format html

    write_data(comparison_page(side_by_side(old, new, _names(arguments))), arguments.output)


def _names(arguments: argparse.Namespace) -> tuple[str, str]:
    """Return what the user calls each side: two files, or two revisions."""
    if arguments.git is None:
        old, new = arguments.what
        return old, new
    revisions = parse_range(arguments.git)
    return revisions.old, revisions.new or "working tree"


def _show_text(change: ReportChange, over: tuple[Diagnostic, ...], output: str | None) -> None:
    from rich.console import Console  # takes 0.1 s, needed only for text

    from aotlens.render.text.difference import difference_lines
    from aotlens.render.text.layout import WIDTH, page_width, print_lines, to_text

    if output is not None:
        write_data(to_text(difference_lines(change, WIDTH)), output)
        return
    console = Console()
    print_lines(difference_lines(change, page_width(console)), console)
