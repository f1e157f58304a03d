"""`aotlens tui TARGET`: the terminal app."""

import argparse

from aotlens.cli.target import TargetName, add_gpu, add_policy, check_gpu, policy_of
from aotlens.errors import UserError
from aotlens.worker.protocol import TraceOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="TARGET", type=TargetName.parse, nargs="?", help="SCRIPT or SCRIPT::name"
    )
    parser.add_argument("--report", metavar="FILE", help="open a saved JSON report instead of tracing")
    parser.add_argument("--watch", action="store_true", help="trace again when the script changes")
    add_policy(parser)
    add_gpu(parser)


def run(arguments: argparse.Namespace) -> int:
    target: TargetName | None = arguments.target
    if target is None and arguments.report is None:
        raise UserError("give a TARGET to trace, or --report FILE to open")
    check_gpu(arguments.gpu)
    options = TraceOptions(policy=str(policy_of(arguments)), gpu=arguments.gpu)
    from tui.app import run as run_app  # Textual: 0.4 s
    from tui.tracing import Asked

    asked = None
    if target is not None:
        asked = Asked(target.path, target.qualname, tuple(arguments.argv), options)
    return run_app(asked, arguments.report, arguments.watch)
