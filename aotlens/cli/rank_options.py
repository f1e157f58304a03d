"""The options of `aotlens fit` for distributed scripts."""

import argparse
import re

from aotlens.errors import UserError
from aotlens.fit.job import DEFAULT_BANDWIDTH_GB_PER_S

__all__ = ["add_rank_arguments", "chosen_ranks"]

ALL: tuple[int, ...] = (-1,)
_UNITS = {"": 1.0, "M": 1e-3, "G": 1.0, "T": 1e3}
_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*([MGT]?)B?(?:/s)?", re.IGNORECASE)


def world_size(text: str) -> int:
    """Return the number of ranks that an option states."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of ranks: pass a number such as 8")
    return int(text)


def rank_list(text: str) -> tuple[int, ...]:
    """Return the ranks of an option, `0,7` or `all`."""
    if text == "all":
        return ALL
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of ranks: pass numbers such as 0,7 or `all`")
    return tuple(dict.fromkeys(int(part) for part in parts))


def bandwidth_gb_per_s(text: str) -> float:
    """Return the bandwidth of an option, such as `300GB/s`, in 10^9 bytes a second."""
    match = _BANDWIDTH.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no bandwidth: pass one such as 300GB/s")
    return float(match[1]) * _UNITS[match[2].upper()]


def add_rank_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks",
        metavar="N",
        type=world_size,
        help="run a distributed script as single ranks of N, without other processes or GPUs",
    )
    parser.add_argument(
        "--rank",
        metavar="LIST",
        type=rank_list,
        help="the ranks that run, one after the other: 0,3 or all (default: the first and the last)",
    )
    parser.add_argument(
        "--bandwidth",
        metavar="RATE",
        type=bandwidth_gb_per_s,
        default=DEFAULT_BANDWIDTH_GB_PER_S,
        help="what a rank sends to the next, for the predicted times of collectives (default: 300GB/s)",
    )


def chosen_ranks(arguments: argparse.Namespace) -> tuple[int, ...]:
    """Return the ranks to run; empty for a script that is not distributed.

    Raises:
        UserError: the options contradict each other, or name a rank that does not exist.
    """
    size, ranks = arguments.ranks, arguments.rank
    if size is None:
        if ranks is not None:
            raise UserError("--rank chooses among ranks: add --ranks N for their number")
        return ()
    if arguments.real:
        raise UserError("--real needs the other ranks, which --ranks leaves out: use one of the two options")
    if ranks is None:
        return tuple(dict.fromkeys((0, size - 1)))
    if ranks == ALL:
        return tuple(range(size))
    if missing := [rank for rank in ranks if rank >= size]:
        raise UserError(f"there is no rank {missing[0]} of {size}: the last is {size - 1}")
    return tuple(ranks)
