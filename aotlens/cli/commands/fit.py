"""`aotlens fit SCRIPT ARGS…`: the memory of a whole step; of a memory snapshot, who held GPU memory."""

import argparse
import time
from dataclasses import replace

from aotlens.cli.export_formats import check_whole_format, whole_text
from aotlens.cli.fit_advice import add_advice_arguments, check_fix, misses_target, with_advice, write_plan
from aotlens.cli.options import output_file
from aotlens.cli.rank_options import add_rank_arguments, chosen_ranks
from aotlens.cli.targets import check_script
from aotlens.cli.terminal import say, show_failure, write_data
from aotlens.diagnostics.budgets import over_step_budget
from aotlens.errors import UserError
from aotlens.model.fit import Fit
from aotlens.model.report import Report
from aotlens.worker.fit_results import FitRun, open_fit_results

FORMATS = ("text", "json", "html")
SNAPSHOT_ENDINGS = (".pickle", ".pkl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="also report whether the step fits this GPU, which need not be present: h100, a100, sm_90, …",
    )
    parser.add_argument(
        "--real",
        action="store_true",
        help="run on real tensors: for a script whose sizes depend on values, which fake tensors lack",
    )
    parser.add_argument(
        "--largest",
        metavar="NAME",
        help="also compute the largest number that fits the GPU for this one of the script: BATCH for a line"
        " `BATCH = 16`, --largest=--batch-size for an option of the script",
    )
    add_rank_arguments(parser)
    add_advice_arguments(parser)
    parser.add_argument(
        "--to-end", action="store_true", help="run the script to its end, not until its steps repeat"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="html is one page for a browser (default: %(default)s)",
    )
    parser.add_argument(
        "-o", dest="output", metavar="FILE", type=output_file, help="write to this file instead of stdout"
    )
    parser.add_argument("--full", action="store_true", help="show every line that allocates memory")
    parser.add_argument(
        "script",
        metavar="SCRIPT",
        help="a Python script; or SNAPSHOT.pickle, a file of torch.cuda.memory._dump_snapshot, which runs"
        " nothing; with `SNAPSHOT.pickle SCRIPT ARGS…` what was held is compared with the prediction",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.script.endswith(SNAPSHOT_ENDINGS):
        from aotlens.cli.memory_snapshots import show_snapshot

        return show_snapshot(arguments)
    check_script(arguments.script)
    check_whole_format(arguments.format, arguments.output)
    ranks = chosen_ranks(arguments)
    _check_options(arguments)
    from aotlens.fit.job import FIT_CHILD, FitJob  # torch and the worker are loaded only for a script
    from aotlens.session.why.observation import observe_script

    if arguments.gpu is not None:
        from aotlens.model.gpus.names import find_target

        find_target(arguments.gpu)  # an unknown name is reported before the script runs
    job = FitJob(arguments.script, tuple(arguments.argv), arguments.gpu, arguments.real, arguments.to_end)
    started = time.time()
    if ranks:
        from aotlens.fit.ranks import fit_on_ranks

        job = replace(job, world_size=arguments.ranks, bandwidth_gb_per_s=arguments.bandwidth)
        observed = fit_on_ranks(job, ranks)
    elif arguments.largest is not None:
        from aotlens.fit.largest.search import fit_largest

        observed = fit_largest(job, arguments.largest, lambda sized: observe_script(sized, FIT_CHILD), say)
    else:
        observed = observe_script(job, FIT_CHILD)
    if observed.message:
        say(observed.message)
    if observed.report is None:
        raise UserError(f"{arguments.script} {observed.ending} before a report could be made")
    report, edits = observed.report, None
    if observed.failure is None:
        report, edits = with_advice(report, job, arguments)
    _show(report, arguments, "" if edits is None else edits.diff)
    if observed.failure is None:
        write_plan(edits, None if report.fit is None else report.fit.plan, arguments)
    if observed.failure is None:
        _store(FitRun(job.path, job.argv, job.gpu, observed.files, started, bool(ranks)), report)
    else:
        show_failure(observed.failure.message, observed.failure.traceback, observed.failure.exit_code)
    return observed.exit_code or int(_exceeds_a_limit(report.fit, arguments))


def _exceeds_a_limit(fit: Fit | None, arguments: argparse.Namespace) -> bool:
    """Return True if the step exceeds the GPU, the budget or the target, of which the budget is reported."""
    is_too_large = fit is not None and fit.fits is not None and not fit.fits.ok
    exceeds_budget = _exceeds_budget(fit, arguments.script)
    return is_too_large or exceeds_budget or misses_target(fit, arguments)


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise UserError for options that cannot be used together, before the script runs."""
    check_fix(arguments)
    if arguments.largest is not None and arguments.gpu is None:
        raise UserError("--largest needs a GPU to fit: add --gpu h100 or another")
    if arguments.largest is not None and arguments.ranks is not None:
        raise UserError("--largest runs the script as one rank: remove --ranks")


def _store(run: FitRun, report: Report) -> None:
    """Store the result for the terminal app, editors and `aotlens check`."""
    results = open_fit_results()
    if results is not None:
        results.add(run, report)


def _exceeds_budget(fit: Fit | None, script: str) -> bool:
    """Report a step that exceeds the `step-peak` of the pyproject.toml next to the script."""
    from aotlens.check.settings import settings_for

    settings = settings_for(script)
    findings = [] if fit is None else list(over_step_budget(fit, settings.budget_of(script)))
    selected = [finding for finding in findings if settings.selects(finding.code, script, None)]
    for finding in selected:
        say(f"aotlens: {finding.code}: {finding.message}")
    return bool(selected)


def _show(report: Report, arguments: argparse.Namespace, diff: str) -> None:
    if arguments.format == "json":
        from aotlens.model.codec import dumps  # each renderer is loaded on use

        write_data(dumps(report) + "\n", arguments.output)
    elif arguments.format == "html":
        write_data(whole_text(report, "html", arguments.script), arguments.output)
    else:
        write_data(_text(report, arguments.full, diff), arguments.output)


def _text(report: Report, is_full: bool, diff: str) -> str:
    from aotlens.view.step_memory.step import fit_lines

    first = [] if report.incomplete is None else [f"Incomplete: {report.incomplete}"]
    is_known = report.fit is not None and (report.fit.curve or not first)  # a script may fail early
    rest = list(fit_lines(report.fit, is_full=is_full, diff=diff)) if report.fit and is_known else []
    return "\n".join([*first, *rest]) + "\n"
