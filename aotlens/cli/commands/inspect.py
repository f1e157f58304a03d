"""`aotlens inspect TARGET`: traces in a child process, or reads a saved report, and prints it."""

import argparse

from aotlens.cli.export_formats import TRACE_FORMATS, WHOLE_FORMATS, check_whole_format, whole_text
from aotlens.cli.kernel_options import KernelSelection, add_kernel_options, kernel_selection
from aotlens.cli.log_reports import first_look, print_watched
from aotlens.cli.options import output_file, seconds
from aotlens.cli.saved_reports import add_map, is_report, is_trace_path, saved_report
from aotlens.cli.targets import add_project_options, add_target, check_gpu, fill_from_project, policy_of
from aotlens.cli.terminal import say, show_failure, write_data
from aotlens.cli.trace_target import Traced, trace_target
from aotlens.errors import UserError
from aotlens.model.report import Report
from aotlens.model.stage_changes import check_stage
from aotlens.render.kernel_code import kernel_code
from aotlens.worker.protocol import REPEAT_LIMIT_S, TraceOptions

TIME_LIMIT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(
        parser,
        "SCRIPT or SCRIPT::name; or a report of --format json or a TORCH_TRACE log, which run nothing",
    )
    parser.add_argument(
        "--format",
        choices=TRACE_FORMATS,
        default="text",
        help="html is one page for a browser; model-explorer has the graphs and perfetto compile time and"
        " memory, for the programs of these names (default: %(default)s)",
    )
    parser.add_argument(
        "-o", dest="output", metavar="FILE", type=output_file, help="write to this file instead of stdout"
    )
    parser.add_argument(
        "--stage",
        metavar="NAME",
        help=(
            "print only this stage's program: captured, joint, wrapper, …; the difference of two stages,"
            " A..B; or kernels"
        ),
    )
    parser.add_argument("--full", action="store_true", help="print everything, not only two screens")
    parser.add_argument("--wrapper-source", action="store_true", help="print the whole module text too")
    _add_run_options(parser)
    add_project_options(parser)
    add_kernel_options(parser)
    _add_question_options(parser)
    parser.add_argument(
        "--watch", action="store_true", help="for a log: follow it while it grows, until Ctrl-C"
    )
    add_map(parser)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add how far the script runs."""
    parser.add_argument(
        "--to-end", action="store_true", help="run the script to its end, not only until its targets repeat"
    )
    parser.add_argument(
        "--repeat-limit",
        metavar="SECONDS",
        type=seconds,
        default=REPEAT_LIMIT_S,
        help="how long to continue while targets only repeat (default: %(default)g)",
    )
    parser.add_argument(
        "--time-limit", metavar="SECONDS", type=seconds, help=f"default: {TIME_LIMIT_S:g}, or the project's"
    )
    parser.add_argument("--fresh", action="store_true", help="retrace even if nothing has changed")


def _add_question_options(parser: argparse.ArgumentParser) -> None:
    """Add what is reported besides what the script compiles."""
    parser.add_argument(
        "--max-autotune",
        action="store_true",
        help="with --gpu: also write matrix products and convolutions as Triton kernels, as"
        " torch.compile(mode='max-autotune') may, and list all choices",
    )
    parser.add_argument(
        "--fake",
        action="store_true",
        help="run the whole script on tensors without memory: for a model larger than this machine's memory",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="with --backend inductor: time each kernel on random numbers; on a GPU that the script uses,"
        " kernels are always timed",
    )
    parser.add_argument(
        "--what-if",
        metavar="CHANGE",
        action="append",
        default=[],
        help="also print the totals with this change of the policy, for example recompute:NAME;"
        " repeatable; terms separated by commas are one change",
    )
    parser.add_argument(
        "--dead-values",
        action="store_true",
        help="also run the graphs on random numbers, to find saved values on which no gradient depends",
    )


def run(arguments: argparse.Namespace) -> int:
    fill_from_project(arguments, arguments.target.path)
    policy = policy_of(arguments)
    for change in arguments.what_if:
        policy.changed(change)  # an invalid form is reported before the trace
    _check_fake_options(arguments)
    _check_whole_format_options(arguments)
    if arguments.stage is not None:
        check_stage(arguments.stage)
    check_gpu(arguments.gpu)
    selection = kernel_selection(arguments)
    if arguments.watch:
        target = arguments.target
        if not is_trace_path(target.path):
            raise UserError(
                f"{target.path} is not a log, and --watch follows logs; `aotlens tui --watch` takes a script"
            )
        print_watched(target.path, target.qualname, arguments.mappings)
        return 0
    traced = _traced(arguments, _trace_options(arguments, str(policy), selection))
    if traced.report is not None and traced.report.incomplete is not None and arguments.format != "text":
        say(f"aotlens: incomplete: {traced.report.incomplete}")
    if traced.report is not None:
        _show(traced.report, arguments, selection)
    if traced.failure is not None:
        failure = traced.failure
        return show_failure(failure.message, failure.traceback, failure.exit_code)
    return 1 if traced.report is not None and _has_errors(traced.report) else 0


def _trace_options(arguments: argparse.Namespace, policy: str, selection: KernelSelection) -> TraceOptions:
    return TraceOptions(
        backend=arguments.backend,
        dynamic=arguments.dynamic,
        policy=policy,
        to_end=arguments.to_end,
        repeat_limit_s=arguments.repeat_limit,
        gpu=arguments.gpu,
        max_autotune=arguments.max_autotune,
        measure=arguments.measure,
        fake=arguments.fake,
        gpu_texts=selection.traced,
        kernel_limit_s=arguments.kernel_time_limit,
        what_if=tuple(arguments.what_if),
        dead_values=arguments.dead_values,
    )


def _traced(arguments: argparse.Namespace, options: TraceOptions) -> Traced:
    """Read the saved report or the log that TARGET names, or trace the script."""
    if is_report(arguments.target):
        limits = None if arguments.full else first_look()
        report = saved_report(arguments.target, arguments.argv, options, arguments.mappings, limits)
        return Traced(report, None, stopped=False)
    return trace_target(
        arguments.target, arguments.argv, options, arguments.time_limit or TIME_LIMIT_S, arguments.fresh
    )


def _has_errors(report: Report) -> bool:
    """Return True if a target is unsupported or has an error among its findings."""
    diagnostics = (
        *report.diagnostics,
        *(diagnostic for target in report.targets for diagnostic in target.diagnostics),
    )
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


def _check_fake_options(arguments: argparse.Namespace) -> None:
    """Raise UserError for an option that needs values and cannot be used with `--fake`."""
    needs = {
        "--dynamic": (arguments.dynamic, "the script's fake tensors have known sizes"),
        "--dead-values": (arguments.dead_values, "the graphs would run on full-size tensors"),
        "--backend inductor": (arguments.backend == "inductor", "compiled kernels need memory"),
    }
    for option, (is_set, why) in needs.items():
        if arguments.fake and is_set:
            raise UserError(f"{option} and --fake cannot be combined: {why}; remove one of them")


def _check_whole_format_options(arguments: argparse.Namespace) -> None:
    """Raise UserError for options that a format with the whole report does not take."""
    if arguments.format not in WHOLE_FORMATS:
        return
    parts = {"--stage": arguments.stage, "--kernel": arguments.kernel, "--text": arguments.text}
    option = next((name for name, value in parts.items() if value is not None), None)
    if option is not None:
        what = "the page" if arguments.format == "html" else "the file"
        raise UserError(f"{option} selects a part of the text: remove it, because {what} has every part")
    check_whole_format(arguments.format, arguments.output)


def _show(report: Report, arguments: argparse.Namespace, selection: KernelSelection) -> None:
    if arguments.format in WHOLE_FORMATS:
        write_data(whole_text(report, arguments.format, str(arguments.target)), arguments.output)
        return
    if arguments.format == "json":
        write_data(_json(report, arguments.stage) + "\n", arguments.output)
        return
    if selection.only_code:
        write_data(kernel_code(report, selection.kernel, selection.languages), arguments.output)
        return
    from rich.console import Console  # takes 0.1 s, needed only for text

    from aotlens.render.text.report import Shown, print_report, report_text

    shown = Shown(arguments.wrapper_source, arguments.stage, arguments.full)
    if arguments.output is None:
        print_report(report, Console(), shown)
    else:
        write_data(report_text(report, shown), arguments.output)


def _json(report: Report, stage: str | None) -> str:
    """Return the whole report; with `--stage` that stage, or the difference of two, for each target."""
    from aotlens.model.codec import dumps, stage_json  # each renderer is loaded on use

    return dumps(report) if stage is None else stage_json(report, stage)
