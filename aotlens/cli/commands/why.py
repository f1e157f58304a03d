"""`aotlens why SCRIPT ARGS…`: runs the script unchanged, and says what Dynamo did to it and what it costs."""

import argparse
import time
from collections.abc import Iterator

from aotlens.cli.export_formats import WHOLE_FORMATS, check_whole_format, whole_text
from aotlens.cli.fix_edits import try_fixes, write_fixes
from aotlens.cli.log_reports import first_look, report_of_trace
from aotlens.cli.options import output_file
from aotlens.cli.saved_reports import add_map, is_trace_path
from aotlens.cli.targets import TargetName, check_script
from aotlens.cli.terminal import say, show_failure, write_data
from aotlens.diagnostics.budgets import over_dynamo_budget
from aotlens.errors import UserError
from aotlens.model.report import Diagnostic, Report

FORECAST_SECONDS = 180.0
"""Time limit of a forecast; variations that are not tried by then are skipped."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=("text", "json", "html", "perfetto"),
        default="text",
        help="html is one page for a browser; perfetto has the compile time, for that program (default:"
        " %(default)s)",
    )
    parser.add_argument(
        "-o", dest="output", metavar="FILE", type=output_file, help="write to this file instead of stdout"
    )
    parser.add_argument("--full", action="store_true", help="print everything, not only one screen")
    parser.add_argument(
        "--guards",
        action="store_true",
        help="also time the guards of each compilation and count calls, which slows down every call a little",
    )
    tries = parser.add_mutually_exclusive_group()
    tries.add_argument(
        "--try-fixes",
        action="store_true",
        help="also run edited copies of the script, and report the edits that keep its outputs",
    )
    tries.add_argument(
        "--fix", action="store_true", help="the same, and print these edits and write them to the files"
    )
    tries.add_argument(
        "--forecast",
        action="store_true",
        help="stop after the first calls, and report which guards fail for other sizes, dtypes, modes and"
        " numbers",
    )
    tries.add_argument(
        "--vary",
        metavar="NAME=VALUES",
        action="append",
        type=varied,
        help="the same for these values only: `x.shape[0]=1,8,9`, `batch=1,8`, `x.dtype=float64`,"
        " `k=2,None`, `eval`, `no_grad`; several options are combined",
    )
    parser.add_argument(
        "script",
        metavar="SCRIPT",
        help="a Python script, or a TORCH_TRACE log (LOG::NAME for one function)",
    )
    add_map(parser)


def varied(text: str) -> str:
    """Check that an option of `--vary` can be parsed."""
    from aotlens.forecast.vary import VaryError, parse_vary

    try:
        parse_vary(text)
    except VaryError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def run(arguments: argparse.Namespace) -> int:
    is_trace = is_trace_path(TargetName.parse(arguments.script).path)
    if not is_trace:
        check_script(arguments.script)
    check_whole_format(arguments.format, arguments.output)
    if is_trace:
        return _run_on_trace(arguments)
    from aotlens.session.why.observation import WhyJob, observe_script

    started = time.time()
    seconds = FORECAST_SECONDS if arguments.forecast or arguments.vary else 0.0
    vary = tuple(arguments.vary or ())
    job = WhyJob(arguments.script, tuple(arguments.argv), arguments.guards, seconds, vary)
    observed = observe_script(job)
    if observed.message:
        say(observed.message)
    if observed.report is None:
        raise UserError(f"{arguments.script} {observed.ending} before a report could be made")
    if arguments.vary and observed.report.dynamo is None and observed.failure is not None:
        show_failure(observed.failure.message, observed.failure.traceback, observed.failure.exit_code)
        return observed.exit_code
    report, result = try_fixes(observed.report, arguments, started)
    _show(report, arguments)
    if arguments.fix:
        write_fixes(result, arguments, started)
    exceeds_budget = _say_over_budget(report, arguments.script)
    if observed.failure is not None:
        failure = observed.failure
        show_failure(failure.message, failure.traceback, failure.exit_code)
    return observed.exit_code or int(exceeds_budget)


def _run_on_trace(arguments: argparse.Namespace) -> int:
    """Report graph breaks, recompilations and compile time from a log; nothing is run."""
    run_options = {
        "--guards": arguments.guards,
        "--fix": arguments.fix,
        "--try-fixes": arguments.try_fixes,
        "--forecast": arguments.forecast,
        "--vary": arguments.vary,
    }
    option = next((name for name, value in run_options.items() if value), None)
    if option is not None:
        raise UserError(f"{option} needs a script, and {arguments.script} is a log: remove it")
    log = TargetName.parse(arguments.script)
    report = report_of_trace(log.path, log.qualname, arguments.mappings, limits=first_look())
    _show(report, arguments)
    return int(_say_over_budget(report, log.path))


def _say_over_budget(report: Report, script: str) -> bool:
    """Print the functions that exceed their limits; return True if there is one."""
    exceeded = list(_over_budget(report, script))
    for finding in exceeded:
        say(f"aotlens: {finding.code}: {finding.message}")
    return bool(exceeded)


def _over_budget(report: Report, script: str) -> Iterator[Diagnostic]:
    """Yield functions that exceed the limits of the pyproject.toml next to the script."""
    from aotlens.check.settings import settings_for

    settings = settings_for(script)
    for function in report.dynamo.functions if report.dynamo is not None else ():
        file = function.span.file
        for finding in over_dynamo_budget(function, settings.budget_of(file, function.qualname)):
            if settings.selects(finding.code, file, function.qualname):
                yield finding


def _show(report: Report, arguments: argparse.Namespace) -> None:
    if arguments.format == "json":
        from aotlens.model.codec import dumps  # each renderer is loaded on use

        write_data(dumps(report) + "\n", arguments.output)
        return
    if arguments.format in WHOLE_FORMATS:
        write_data(whole_text(report, arguments.format, arguments.script), arguments.output)
        return
    from rich.console import Console  # takes 0.1 s, needed only for text

    from aotlens.render.text.why import print_why, why_text

    if arguments.output is None:
        print_why(report, Console(), arguments.full)
    else:
        write_data(why_text(report, arguments.full), arguments.output)
