"""Option values and groups of options that several commands share.

Invariant: a bad value is rejected while the command line is parsed, before anything runs.
"""

import argparse
import math
from pathlib import Path

from aotlens.diagnostics.budgets import Budget
from aotlens.errors import UserError
from aotlens.policy import size_bytes

__all__ = ["add_limits", "count", "limits_of", "output_file", "seconds"]


def seconds(text: str) -> float:
    """Parse a positive time limit."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def count(text: str) -> int:
    """Parse a number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def output_file(text: str) -> str:
    """Parse the path of an output file in an existing folder."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: there is no folder {path.parent}")
    return text


def add_limits(parser: argparse.ArgumentParser) -> None:
    for name, what in (("saved", "bytes saved for the backward"), ("peak", "predicted peak memory")):
        parser.add_argument(
            f"--max-{name}-bytes", metavar="SIZE", type=_size, help=f"the maximum {what}, for example 64MiB"
        )
    parser.add_argument(
        "--max-wrapper-steps", metavar="N", type=int, help="the maximum number of wrapper steps on each call"
    )


def limits_of(arguments: argparse.Namespace) -> Budget:
    return Budget(arguments.max_saved_bytes, arguments.max_peak_bytes, arguments.max_wrapper_steps)


def _size(text: str) -> int:
    try:
        return size_bytes(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
