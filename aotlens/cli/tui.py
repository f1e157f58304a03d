"""`aotlens tui TARGET`: the terminal app."""

import argparse

from aotlens.cli.target import TargetName
from aotlens.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="TARGET", type=TargetName.parse, nargs="?", help="SCRIPT or SCRIPT::name"
    )
    parser.add_argument("--report", metavar="FILE", help="open a saved JSON report instead of tracing")
    parser.add_argument("--watch", action="store_true", help="trace again when the script changes")


def run(arguments: argparse.Namespace) -> int:
    if arguments.target is None and arguments.report is None:
        raise UserError("give a TARGET to trace, or --report FILE to open")
    from tui.app import run as run_app  # Textual: 0.4 s

    path = arguments.target.path if arguments.target is not None else None
    qualname = arguments.target.qualname if arguments.target is not None else None
    return run_app(path, qualname, arguments.report, arguments.watch, tuple(arguments.argv))
