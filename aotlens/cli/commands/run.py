"""`aotlens run SCRIPT ARGS…`: runs the script in this process, its targets compiled by the engine."""

import argparse

from aotlens.cli.options import output_file
from aotlens.cli.progress import compilations
from aotlens.cli.targets import add_allow_unverified, add_compile_options, check_script, policy_of
from aotlens.cli.terminal import say, show_failure, stderr_console, write_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verify", action="store_true", help="compare each target's first call with eager")
    add_allow_unverified(parser)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show each graph with its wrapper steps and times"
    )
    parser.add_argument(
        "--report", metavar="FILE", type=output_file, help=("write the report to this file as JSON")
    )
    add_compile_options(parser, backend="inductor")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help=("compile without reading or writing the cache (see `aotlens cache`)"),
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="stop the script at a graph that cannot be compiled, instead of running it in eager",
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python script")


def run(arguments: argparse.Namespace) -> int:
    check_script(arguments.script)
    from aotlens.options import CompileOptions
    from aotlens.render.text.closing import Closing, print_closing
    from aotlens.session.run import run_compiled  # imports torch

    options = CompileOptions(
        arguments.backend,
        arguments.dynamic,
        policy_of(arguments),
        cache=not arguments.no_cache,
        strict=arguments.strict,
    )
    with compilations():
        ran = run_compiled(arguments.script, arguments.argv, options, arguments.verify)
    if ran.end.message:
        say(ran.end.message)
    if ran.end.failure is not None:
        failure = ran.end.failure
        show_failure(failure.message, failure.traceback, failure.exit_code)
    if ran.targets or ran.not_compiled:
        closing = Closing(ran.targets, ran.verdicts, ran.not_compiled, ran.dynamo, arguments.verbose)
        print_closing(closing, stderr_console())
    if arguments.report is not None:
        from aotlens.model.codec import dumps

        write_data(dumps(ran.report()) + "\n", arguments.report)
    if ran.end.exit_code == 0 and not (ran.targets or ran.not_compiled):
        say(f"aotlens: nothing was compiled: {ran.path} passes nothing to torch.compile or aotlens.compile")
    return ran.exit_code(arguments.allow_unverified)
