"""`aotlens run SCRIPT ARGS…`: runs the script in this process, its targets compiled by the engine."""

import argparse

from aotlens.cli.target import add_compile_options, check_script, policy_of
from aotlens.cli.terminal import say, show_failure, stderr_console, user_error, write_data
from aotlens.cli.values import output_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verify", action="store_true", help="compare each target's first call with eager")
    parser.add_argument("--report", metavar="FILE", type=output_file, help="write the report there as JSON")
    add_compile_options(parser, backend="inductor")
    parser.add_argument(
        "--no-cache", action="store_true", help="compile anew, and keep nothing (see `aotlens cache`)"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python script")
    parser.add_argument(
        "argv",
        metavar="ARGS",
        nargs=argparse.REMAINDER,
        help="its arguments, untouched; our options may stand before them, and `--` ends ours",
    )


_OPTIONS = {
    "--verify": 0,
    "--dynamic": 0,
    "--no-cache": 0,
    "--report": 1,
    "--backend": 1,
    "--policy": 1,
    "--memory-budget": 1,
}
"""Our options, and how many values each takes."""


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our words, and the script's arguments: from the first word after SCRIPT on that is no option of ours.

    A first `--` there ends our options and is not passed on.
    """
    script = _after_options(words, 0)
    if script >= len(words) or words[script].startswith("-"):  # the parser says what is wrong
        return words, []
    end = _after_options(words, script + 1)
    ours = [*words[:script], *words[script + 1 : end], words[script]]
    return ours, words[end + 1 :] if words[end : end + 1] == ["--"] else words[end:]


def _after_options(words: list[str], at: int) -> int:
    while at < len(words) and words[at].partition("=")[0] in _OPTIONS:
        at += 1 if "=" in words[at] else 1 + _OPTIONS[words[at]]
    return at


def run(arguments: argparse.Namespace) -> int:
    check_script(arguments.script)
    from aotlens.options import CompileOptions
    from aotlens.report.closing import print_closing
    from aotlens.session.run import run_compiled  # imports torch

    options = CompileOptions(
        arguments.backend, arguments.dynamic, policy_of(arguments), cache=not arguments.no_cache
    )
    ran = run_compiled(arguments.script, arguments.argv, options, arguments.verify)
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
        return user_error(
            f"{ran.path} ran, but gave nothing to torch.compile or aotlens.compile, or nothing that Dynamo "
            "captures (TORCH_LOGS=graph_breaks tells why)"
        )
    return 1 if ran.end.exit_code == 0 and ran.mismatch else ran.end.exit_code
