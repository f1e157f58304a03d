"""`aotlens verify TARGET`: compiled against eager, in this process."""

import argparse

from aotlens.cli.target import add_compile_options, add_target, check_script, policy_of
from aotlens.cli.terminal import show_failure, stdout_on_stderr, write_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_compile_options(parser, backend="inductor")


def run(arguments: argparse.Namespace) -> int:
    check_script(arguments.target.path)
    from aotlens.options import CompileOptions
    from aotlens.session.verify_targets import verify_targets  # imports torch

    options = CompileOptions(arguments.backend, arguments.dynamic, policy_of(arguments))
    target = arguments.target
    with stdout_on_stderr():
        verified = verify_targets(target.path, target.qualname, arguments.argv, options)
    for name, verdict in verified.verdicts:
        if verdict is None:
            write_data(f"{'not called':<10}  {name}\n", None)
        else:
            write_data(f"{'ok' if verdict.ok else 'MISMATCH':<10}  {name}: {verdict.text}\n", None)
    for failure in verified.failures:
        show_failure(failure.message, failure.traceback, failure.exit_code)
    return verified.exit_code
