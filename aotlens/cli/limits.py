"""Budgets on the command line, for the commands that judge by them."""

import argparse

from aotlens.diagnostics.budgets import Budget
from aotlens.errors import UserError
from aotlens.policy import size_bytes

__all__ = ["add_limits", "limits_of"]


def add_limits(parser: argparse.ArgumentParser) -> None:
    for name, what in (("saved", "saved for the backward"), ("peak", "predicted at the peak")):
        parser.add_argument(
            f"--max-{name}-bytes", metavar="SIZE", type=_size, help=f"the most that may be {what}, as 64MiB"
        )
    parser.add_argument(
        "--max-wrapper-steps", metavar="N", type=int, help="the most that the wrapper may do on each call"
    )


def limits_of(arguments: argparse.Namespace) -> Budget:
    return Budget(arguments.max_saved_bytes, arguments.max_peak_bytes, arguments.max_wrapper_steps)


def _size(text: str) -> int:
    try:
        return size_bytes(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
