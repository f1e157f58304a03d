"""`aotlens fit --advise`, `--target` and `--fix`: test edits that lower the peak, and write a plan."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from aotlens.cli.edited_files import EditedFiles
from aotlens.cli.terminal import say
from aotlens.errors import UserError
from aotlens.model.fit import Fit, FitPlan
from aotlens.model.report import Report
from aotlens.model.spans import is_users_own
from aotlens.policy import MemoryBudget
from aotlens.view.quantities import counted
from aotlens.view.step_memory.advice import plan_words

if TYPE_CHECKING:
    from aotlens.fit.advice.search import Advised
    from aotlens.fit.advice.target import Goal, PeakTarget
    from aotlens.fit.job import FitJob

__all__ = ["add_advice_arguments", "check_fix", "misses_target", "tested_advice", "with_advice", "write_plan"]


def add_advice_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--advise",
        action="store_true",
        help="also test edits of the script that lower the peak, and compare their training on real tensors;"
        " done by itself where the step does not fit the GPU",
    )
    parser.add_argument(
        "--target",
        metavar="SIZE",
        type=target_size,
        help="find and print the cheapest edits whose peak is at most this: `24GiB`, or `75%%` of the peak;"
        " exit with 1 if none reach it",
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="write the edits that --target prints to the files, if they reach it",
    )


def check_fix(arguments: argparse.Namespace) -> None:
    """Raise UserError where no plan can be made for `--fix`, before the script runs."""
    if arguments.fix and arguments.target is None and arguments.gpu is None:
        raise UserError(
            "--fix writes the edits that reach a target: add --target 75%, or a GPU to fit: --gpu t4"
        )


def target_size(text: str) -> MemoryBudget:
    """Parse bytes or a fraction of the peak."""
    try:
        return MemoryBudget.parse(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a size (`24GiB`) nor a fraction of the peak (`75%`)"
        ) from error


def with_advice(
    report: Report, job: "FitJob", arguments: argparse.Namespace
) -> tuple[Report, EditedFiles | None]:
    """Return the report with advice if it is asked for or needed, and the plan's edits."""
    fit = report.fit
    is_too_large = fit is not None and fit.fits is not None and not fit.fits.ok
    if not (arguments.advise or arguments.target or arguments.fix or is_too_large):
        return report, None
    if fit is None or not fit.curve or fit.distribution is not None:
        say("aotlens: no edits are tested: they need a script on one device whose memory is known")
        return report, None
    from aotlens.fit.advice.target import Goal

    goal = Goal(_peak_target(arguments, fit), arguments.advise or not arguments.target)
    advised, texts = tested_advice(job, fit, goal)
    report = replace(report, fit=replace(fit, advice=advised.advice, plan=advised.plan))
    originals = {file: texts[file] for file in advised.texts}
    return report, EditedFiles(originals, advised.texts) if advised.texts else None


def tested_advice(job: "FitJob", fit: Fit, goal: "Goal") -> "tuple[Advised, Mapping[str, str]]":
    """Test edits of a script whose step is known; return the advice, and the files without the edits."""
    from aotlens.fit.advice.search import advise
    from aotlens.fit.advice.trials import trials
    from aotlens.session.trials.fix_trials import read_texts

    files = [row.span.file for row in fit.by_line if row.span is not None and is_users_own(row.span.file)]
    texts = read_texts((job.path, *files))

    def say_progress(line: str) -> None:
        say(f"aotlens: testing edits: {line}")

    with trials(job) as runs:
        advised = advise(runs, texts, fit, goal, say_progress)
        if runs.runs:
            say_progress(f"{counted(runs.runs, 'run')} of the script")
    for title, reason in advised.rejected:
        say(f"aotlens: not advised: {title}: {reason}")
    return advised, texts


def _peak_target(arguments: argparse.Namespace, fit: Fit) -> "PeakTarget | None":
    """Return what `--target` asks for; without it, the capacity of a GPU that the step exceeds."""
    from aotlens.fit.advice.target import PeakTarget

    budget: MemoryBudget | None = arguments.target
    if budget is None:
        if fit.fits is not None and not fit.fits.ok:
            return PeakTarget(fit.fits.capacity_bytes, is_reserved=True)
        return None
    if budget.size_bytes is not None:
        return PeakTarget(budget.size_bytes)
    return PeakTarget(int(fit.step_peak_bytes * (budget.fraction or 0)))


def misses_target(fit: Fit | None, arguments: argparse.Namespace) -> bool:
    """Return True if `--target` asks for less than the step needs, with all edits that were found."""
    if arguments.target is None or fit is None:
        return False
    if fit.plan is not None:
        return not fit.plan.is_reached
    target = _peak_target(arguments, fit)
    return target is not None and fit.step_peak_bytes > target.size_bytes


def write_plan(edits: EditedFiles | None, plan: FitPlan | None, arguments: argparse.Namespace) -> None:
    """Write a plan that reaches its target; the text of the report has its diff, other formats stderr."""
    if edits is not None and arguments.format != "text":
        edits.print_diff(arguments)
    if not arguments.fix:
        return
    if plan is None:
        say("aotlens: nothing is written: the step fits the GPU; --target 75% asks for less")
    elif edits is None:
        say(f"aotlens: nothing is written: {plan_words(plan)}")
    elif not plan.is_reached:
        reachable = MemoryBudget(size_bytes=plan.peak_bytes)
        nearest = f"; --target {reachable} would write these edits" if arguments.target else ""
        say(f"aotlens: nothing is written: the target is not reached{nearest}")
    else:
        edits.write("while it was tested")
        say(f"aotlens: wrote the edits to {counted(len(edits.texts), 'file')}")
