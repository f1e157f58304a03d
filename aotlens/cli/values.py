"""What options take, refused while the command line is parsed and not after a trace."""

import argparse
import math
from pathlib import Path

__all__ = ["count", "output_file", "seconds"]


def seconds(text: str) -> float:
    """A limit of time: more than none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def count(text: str) -> int:
    """At least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def output_file(text: str) -> str:
    """A file that is written at the end, in a folder that is there."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: there is no folder {path.parent}")
    return text
