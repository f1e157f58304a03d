"""`aotlens rule [CODE]`: the page of one diagnostic, or the list of all."""

import argparse
import sys

from aotlens.cli.terminal import write_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code", metavar="CODE", nargs="?", help=("for example AL101; without it, list all codes")
    )


def run(arguments: argparse.Namespace) -> int:
    from aotlens.diagnostics.rules import RULES, page, rule

    if arguments.code is None:
        rows = (f"{entry.code}  {entry.severity:<11}  {entry.title}\n" for entry in RULES)
        write_data("".join(rows), None)
        return 0
    text = page(rule(arguments.code))
    if not sys.stdout.isatty():
        write_data(text, None)
        return 0
    from rich.console import Console  # both take 0.1 s, and only a terminal shows Markdown
    from rich.markdown import Markdown

    Console().print(Markdown(text))
    return 0
