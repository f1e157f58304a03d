"""`aotlens run SCRIPT ARGS…`: runs the script in this process, its targets compiled by the engine."""

import argparse

from aotlens.cli.target import add_compile_options, check_script
from aotlens.cli.terminal import say, show_failure, stderr_console, user_error, write_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verify", action="store_true", help="compare each target's first call with eager")
    parser.add_argument("--report", metavar="FILE", help="write the report there as JSON")
    add_compile_options(parser, backend="inductor")
    parser.add_argument("script", metavar="SCRIPT", help="a Python script")
    parser.add_argument(
        "argv",
        metavar="ARGS",
        nargs=argparse.REMAINDER,
        help="its arguments, untouched; our options may stand before them, and `--` ends ours",
    )


_OWN_OPTIONS = {"--verify": 0, "--dynamic": 0, "--report": 1, "--backend": 1, "--policy": 1}
"""Options that are ours also right after SCRIPT, and how many values each takes."""


def _read_own_options(arguments: argparse.Namespace) -> list[str]:
    """Takes our options right after SCRIPT; the script's arguments are all from the first other word on."""
    argv: list[str] = arguments.argv
    at = 0
    while at < len(argv) and argv[at].partition("=")[0] in _OWN_OPTIONS:
        at += 1 if "=" in argv[at] else 1 + _OWN_OPTIONS[argv[at]]
    parser = argparse.ArgumentParser("aotlens run", allow_abbrev=False)
    add_arguments(parser)
    parser.parse_args([*argv[:at], arguments.script], namespace=arguments)
    return argv[at + 1 :] if argv[at : at + 1] == ["--"] else argv[at:]


def run(arguments: argparse.Namespace) -> int:
    check_script(arguments.script)
    argv = _read_own_options(arguments)
    from aotlens.options import CompileOptions
    from aotlens.report.closing import print_closing
    from aotlens.session.run import run_compiled  # imports torch

    options = CompileOptions(arguments.backend, arguments.dynamic, arguments.policy)
    ran = run_compiled(arguments.script, argv, options, arguments.verify)
    if ran.end.said:
        say(ran.end.said)
    if ran.end.failure is not None:
        failure = ran.end.failure
        show_failure(failure.message, failure.traceback, failure.exit_code)
    if ran.targets:
        print_closing(ran.targets, stderr_console(), ran.verdicts)
    if arguments.report is not None:
        from aotlens.report.codec import dumps

        write_data(dumps(ran.report()) + "\n", arguments.report)
    if ran.end.exit_code == 0 and not ran.targets:
        return user_error(f"{ran.path} ran, but gave nothing to torch.compile or aotlens.compile")
    return 1 if ran.end.exit_code == 0 and ran.mismatch else ran.end.exit_code
