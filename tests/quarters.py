"""Choose the quarter of a run: four consecutive commits run all that takes turns but the costly.

Promise: whether a case belongs to a quarter depends only on its name, so that a new program moves no other.
A case is a program with one configuration, or a test that is marked `rotates`.
"""

import os
import subprocess
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

QUARTERS = ROUNDS = 4
ALL = "all"
VARIABLE = "AOTLENS_TESTS_QUARTER"
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Quarter:
    """The cases of this run."""

    number: int | None
    """0 to 3; None for all of them."""
    reason: str
    """What chose it; shown in pytest's header."""
    round: int = 0
    """0 to 3: which of the costly cases; each round is four commits."""

    def takes(self, name: str, turn: int = 0) -> bool:
        """Return True if the case is in this quarter; cases of one name and other turns are in others."""
        return self.number is None or (zlib.crc32(name.encode()) + turn) % QUARTERS == self.number

    def takes_costly(self, name: str, rounds: int) -> bool:
        """Return True if a costly case runs, which only one of this many rounds (2 or 4) takes."""
        return self.number is None or zlib.crc32(name.encode()) // QUARTERS % rounds == self.round % rounds

    def runs(self, name: str, turn: int | str | None = None, *, is_named: bool = False) -> bool:
        """Return True if a test that is marked `rotates`, or `rotates(turn)`, runs in this quarter.

        A test in a file that the command line names does not wait for its quarter, only for `ALL`.
        """
        if self.number is None or turn == ALL:
            return self.number is None
        return is_named or (self.takes(name) if turn is None else turn == self.number)

    def __str__(self) -> str:
        which = "all cases" if self.number is None else f"quarter {self.number} of 0 to 3"
        return f"tests that take turns: {which} ({self.reason}; --quarter {ALL} for everything)"


def choose(option: str | None, root: Path = ROOT) -> Quarter:
    """Return the quarter of the option, else of the environment, else of the checked-out commit."""
    if option is not None:
        return Quarter(_number(option), "--quarter")
    if os.environ.get(VARIABLE):
        return Quarter(_number(os.environ[VARIABLE]), VARIABLE)
    if not (root / ".git").exists():
        return Quarter(0, "no git checkout")
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        commit = _git(root, "rev-parse", "HEAD")
        return _nth(int(commit or "0", 16), "the id of the commit, as the clone is shallow")
    count = _git(root, "rev-list", "--count", "HEAD")
    if not count.isdigit():
        return Quarter(0, "git does not count the commits")
    return _nth(int(count), f"commit {count}")


def _nth(commit: int, reason: str) -> Quarter:
    return Quarter(commit % QUARTERS, reason, commit // QUARTERS % ROUNDS)


def named_files(arguments: Iterable[str]) -> Iterator[Path]:
    """Yield the files among pytest's arguments, which are folders, files and names of tests."""
    for argument in arguments:
        path = Path(argument.partition("::")[0])
        if path.is_file():
            yield path.resolve()


def _number(text: str) -> int | None:
    """Parse a number.  Raises ValueError if it names no quarter."""
    if text == ALL:
        return None
    if text not in map(str, range(QUARTERS)):
        raise ValueError(f"no quarter {text!r}: choose 0 to {QUARTERS - 1}, or {ALL}")
    return int(text)


def _git(root: Path, *words: str) -> str:
    """Return git's answer; empty without git, or if it fails."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
