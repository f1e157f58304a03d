"""`aotlens run SCRIPT ARGS…`: runs the script in this process, its targets compiled by the engine."""

import argparse

from aotlens.cli.target import add_compile_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verify", action="store_true", help="compare each target's first call with eager")
    parser.add_argument("--report", metavar="FILE", help="write the report there as JSON")
    add_compile_options(parser, backend="inductor")
    parser.add_argument("script", metavar="SCRIPT", help="a Python script")
    parser.add_argument("argv", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments, untouched")


def run(arguments: argparse.Namespace) -> int:
    from aotlens.session.run import RunOptions, run_script_compiled  # imports torch

    options = RunOptions(
        backend=arguments.backend,
        dynamic=arguments.dynamic,
        policy=arguments.policy,
        verify=arguments.verify,
        report_file=arguments.report,
    )
    return run_script_compiled(arguments.script, arguments.argv, options)
