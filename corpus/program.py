"""One program of the corpus, described by the comment at its top.

Invariant: reading a program executes nothing, and an unknown word in its header is an error, because a
misspelt option would silently change the measurement.
"""

import hashlib
import re
import shlex
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, cast

__all__ = ["GROUPS", "PROGRAMS", "HeaderError", "Mode", "Program", "find_programs", "read_program"]

PROGRAMS = Path(__file__).parent / "programs"
GROUPS = ("recipes", "transformers", "diffusers", "vision", "libraries")
Mode = Literal["training", "inference"]

_HEADER = re.compile(r"^# corpus:(.*)$", re.MULTILINE)
_OPTION = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|\s*$)")
_KNOWN = frozenset({"mode", "needs", "processes", "args", "steps", "tolerance"})


class HeaderError(ValueError):
    """The header of a program is missing or wrong; the message names the file and the word."""


@dataclass(frozen=True, slots=True)
class Program:
    """One file of the corpus and its header."""

    path: Path
    summary: str
    """The first line of its docstring."""
    mode: Mode
    needs: tuple[str, ...] = ()
    """Packages that it imports besides torch, by their names on the package index."""
    processes: int = 1
    args: tuple[str, ...] = ()
    """Its command line."""
    steps: int | None = None
    """Number of lines after the first; None if the header does not say."""
    tolerance: float | None = None
    """Relative difference that counts as equal; None for that of the dtype."""

    @property
    def name(self) -> str:
        """Return group and file name, as on the command line and in the table."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def group(self) -> str:
        return self.path.parent.name

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def read_program(path: Path) -> Program:
    """Read a program.  Raises HeaderError if the docstring or the header is missing or wrong."""
    text = path.read_text(encoding="utf-8")
    summary = re.match(r'"""(.+?)(?:"""|\n)', text)
    if summary is None:
        raise HeaderError(f"{path}: the first line must be a docstring that says what the program is")
    header = _HEADER.search(text)
    if header is None:
        raise HeaderError(f"{path}: no line `# corpus: mode=training` (or inference)")
    options = {name: value.strip() for name, value in _OPTION.findall(header[1])}
    if "=" not in header[1] or (unknown := options.keys() - _KNOWN):
        wrong = ", ".join(sorted(unknown)) if "=" in header[1] else header[1].strip()
        raise HeaderError(f"{path}: unknown in the header: {wrong}; known: {', '.join(sorted(_KNOWN))}")
    return _program(path, summary[1].strip(), options)


def _program(path: Path, summary: str, options: dict[str, str]) -> Program:
    mode = options.get("mode")
    if mode not in ("training", "inference"):
        raise HeaderError(f"{path}: mode must be training or inference, not {mode}")
    try:
        return Program(
            path,
            summary,
            cast("Mode", mode),
            tuple(filter(None, options.get("needs", "").split(","))),
            int(options.get("processes", 1)),
            tuple(shlex.split(options.get("args", ""))),
            int(options["steps"]) if "steps" in options else None,
            float(options["tolerance"]) if "tolerance" in options else None,
        )
    except ValueError as error:
        raise HeaderError(f"{path}: {error}") from error


def find_programs(patterns: tuple[str, ...] = (), root: Path = PROGRAMS) -> list[Program]:
    """Return all programs, or those whose `group/name` matches one of the patterns, in the order of the
    groups.
    """
    paths = (path for group in GROUPS for path in sorted((root / group).glob("*.py")))
    programs = [read_program(path) for path in paths if not path.name.startswith("_")]
    return [p for p in programs if not patterns or any(_matches(p.name, pattern) for pattern in patterns)]


def _matches(name: str, pattern: str) -> bool:
    return fnmatch(name, pattern) or fnmatch(name, f"*/{pattern}")
