"""The command `aotlens fit` as front ends start it: its words, and what its output means.  Stdlib only.

Invariant: nothing here starts a process; a front end starts it only when the user asks.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from aotlens.errors import AotlensError
from aotlens.model.codec import loads
from aotlens.model.failure import Failure
from aotlens.model.report import Report

__all__ = ["cli_words", "fit_answer", "fit_words"]

ROOT = str(Path(__file__).resolve().parents[2])
START_CLI = f"import sys; sys.path.append({ROOT!r}); from aotlens.cli import main; sys.exit(main())"
"""Starts the command `aotlens`, also where it is not installed; `-P` keeps modules of the project out."""


def cli_words(*words: str, python: str | None = None) -> list[str]:
    """Return the command line of a command of aotlens, for this interpreter unless another is named."""
    return [python or sys.executable, "-P", "-c", START_CLI, *words]


def fit_words(
    path: str,
    argv: Sequence[str],
    gpu: str | None = None,
    python: str | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line that measures the step of a script and prints the report as JSON."""
    chosen = [] if gpu is None else ["--gpu", gpu]
    return cli_words("fit", "--format", "json", *chosen, *options, path, *argv, python=python)


def fit_answer(path: str, data: bytes, errors: str) -> Report | Failure:
    """Return the report on stdout, or the reason why there is none, which is the last line of stderr."""
    last = errors.strip().rpartition("\n")[2]
    try:
        report = loads(data.decode()) if data.strip() else None
    except (AotlensError, ValueError) as error:
        return Failure("internal", f"the report of aotlens fit cannot be read: {error}", exit_code=3)
    if report is None or report.fit is None or not report.fit.curve:
        reason = last or "aotlens fit ended without a report"
        return Failure("user", f"the step of {os.path.basename(path)} was not measured: {reason}")
    return report
