"""Run edited copies of a script, compare them with the script in eager, and keep the edits that work.

Invariant: no file of the user's is written.  Each run is its own process with the same arguments, folder and
seeds; its output is compared, not shown.
"""

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aotlens.fixes.candidates import files_of
from aotlens.fixes.outcomes import SearchResult
from aotlens.fixes.rules import proposed
from aotlens.fixes.search import Attempt, Limits, find_fixes
from aotlens.model.codec import decode_record
from aotlens.model.dynamo import Dynamo
from aotlens.session.job_folder import PRINTED, read_answer, write_job
from aotlens.view.quantities import clock, counted

__all__ = ["OUTCOME", "FixTrials", "TrialJob", "load_trial_run", "proposed_count", "read_texts", "try_fixes"]

OUTCOME = "outcome.json"
LEAST_SECONDS = 120.0
"""The least time limit of a run, however fast the script is."""
TIMES_LONGER = 5.0
"""The time limit of a run as a multiple of the first run's time."""
NOISE = 2.0
"""How many times further from eager a result may be than without an edit."""


@dataclass(frozen=True, slots=True)
class TrialJob:
    """What the child needs to know."""

    path: str
    argv: tuple[str, ...]
    texts: dict[str, str]
    """Edited files; all others are read from disk."""
    is_eager: bool
    reference: str
    """The file with the recorded calls of the eager run, which that run writes."""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """How a trial ended."""

    exit_code: int
    printed: tuple[str, ...]
    failure: str
    dynamo: Dynamo | None
    comparison: dict[str, Any] | None
    """`recorded_calls.Comparison`; None for the eager run."""


Runner = Callable[[Mapping[str, str], bool], TrialRun | None]
"""Runs the script with edited files, in eager or not; returns None if it does not end in time."""


@dataclass(slots=True)
class FixTrials:
    """All runs for one script; mutable, because the runs that every comparison needs are made once."""

    path: str
    runner: Runner
    runs: int = 0
    _unedited: TrialRun | None = None
    _eager: TrialRun | None = None

    def find(self, dynamo: Dynamo, limits: Limits) -> SearchResult:
        """Try the edits that the rules propose for a report of the same script."""
        texts = read_texts((self.path, *files_of(dynamo)))
        if not proposed(dynamo, texts):
            return SearchResult((), {}, {}, 0, True)
        self._eager = self._run({}, is_eager=True)
        if self._eager is None:
            return SearchResult((), {}, {}, 1, False)
        result = find_fixes(self._attempt, dynamo, texts, limits)
        return replace(result, runs=self.runs)

    def _attempt(self, texts: Mapping[str, str]) -> Attempt:
        """Run the script with an edit; `find_fixes` calls it for each edit that it tries."""
        ran = self._run(texts)
        if ran is None:
            return Attempt(None, "the script takes far longer with it")
        return self._compared(ran)

    def _compared(self, ran: TrialRun) -> Attempt:
        """Compare a run with eager: an edit fails if it ends, computes or prints something else.

        What the unedited compiled script prints or computes otherwise than eager is no fault of the edit.
        """
        eager = self._eager
        assert eager is not None
        if (ran.exit_code, bool(ran.failure)) != (eager.exit_code, bool(eager.failure)):
            return Attempt(ran.dynamo, f"the script fails: {ran.failure or f'exit code {ran.exit_code}'}")
        errors = _errors(ran)
        far = {name: error for name, error in errors.items() if error > 1}
        lines = _different_lines(ran.printed, eager.printed)
        masked: set[int] = set()
        if far or lines:
            noise = self._noise()
            if noise is None:
                return Attempt(ran.dynamo, "the script does not end a second time")
            masked = set(_different_lines(noise.printed, eager.printed))
            without = _errors(noise)
            if any(math.isinf(without.get(name, 0.0)) for name in far):
                return Attempt(ran.dynamo, "its outputs differ from eager without the edit too")
            far = {name: error for name, error in far.items() if error > NOISE * without.get(name, 0.0)}
        if far:
            return Attempt(ran.dynamo, f"{next(iter(far))} differs from eager")
        if len(ran.printed) != len(eager.printed):
            return Attempt(
                ran.dynamo, f"it prints {counted(len(ran.printed), 'line')}, not {len(eager.printed)}"
            )
        new = [line for line in lines if line not in masked]
        if new:
            return Attempt(ran.dynamo, f"it prints {ran.printed[new[0]]!r}, not {eager.printed[new[0]]!r}")
        compared = _compared_words(ran, len(eager.printed) - len(masked))
        if not compared:
            return Attempt(
                ran.dynamo, "nothing can be compared: it prints nothing and compiles other functions"
            )
        return Attempt(ran.dynamo, "", compared, bool(masked))

    def _noise(self) -> TrialRun | None:
        """Run the script without edits: its differences from eager are not caused by an edit."""
        if self._unedited is None:
            self._unedited = self._run({})
        return self._unedited

    def _run(self, texts: Mapping[str, str], is_eager: bool = False) -> TrialRun | None:
        self.runs += 1
        return self.runner(texts, is_eager)


@dataclass(frozen=True, slots=True)
class ChildRunner:
    """Runs the script in child processes."""

    path: str
    argv: tuple[str, ...]
    folder: str
    limit_s: float
    say: Callable[[str], None]

    def __call__(self, texts: Mapping[str, str], is_eager: bool) -> TrialRun | None:
        self.say(
            "the script in eager" if is_eager else f"the script with {counted(len(texts), 'edited file')}"
        )
        folder = tempfile.mkdtemp(dir=self.folder)
        job = TrialJob(self.path, self.argv, dict(texts), is_eager, os.path.join(self.folder, "eager.pickle"))
        write_job(folder, job)
        command = [sys.executable, "-m", "aotlens.session.trials.child", folder]
        printed = Path(folder, PRINTED)
        none = subprocess.DEVNULL
        with printed.open("wb") as out:
            try:
                done = subprocess.run(
                    command, stdin=none, stdout=out, stderr=none, timeout=self.limit_s, check=False
                )
            except subprocess.TimeoutExpired:
                return None
        text = printed.read_text(encoding="utf-8", errors="replace")
        outcome = read_answer(folder, OUTCOME)
        if outcome is None:
            return TrialRun(
                done.returncode, tuple(text.splitlines()), "it ended without a result", None, None
            )
        return load_trial_run(outcome, text)


def load_trial_run(outcome: Mapping[str, Any], printed: str) -> TrialRun:
    """Return the outcome that the child wrote."""
    dynamo = None if outcome["dynamo"] is None else decode_record(Dynamo, outcome["dynamo"])
    lines = tuple(printed.splitlines())
    return TrialRun(outcome["exit_code"], lines, outcome["failure"] or "", dynamo, outcome["comparison"])


def _errors(ran: TrialRun) -> dict[str, float]:
    errors: dict[str, float] = {} if ran.comparison is None else ran.comparison["errors"]
    return errors


def _different_lines(lines: Sequence[str], expected: Sequence[str]) -> list[int]:
    """Return the numbers of the lines that differ; lines that one of them lacks do not count."""
    return [index for index, pair in enumerate(zip(lines, expected, strict=False)) if pair[0] != pair[1]]


def _compared_words(ran: TrialRun, lines: int) -> str:
    """Return `5 calls (7 tensors), 1 line of output`; empty if nothing was compared."""
    parts = []
    comparison = ran.comparison or {}
    if comparison.get("calls"):
        parts.append(f"{counted(comparison['calls'], 'call')} ({counted(comparison['tensors'], 'tensor')})")
    if lines:
        parts.append(f"{counted(lines, 'line')} of output")
    return ", ".join(parts)


def read_texts(files: Sequence[str]) -> dict[str, str]:
    """Return the files that can be edited: Python in UTF-8 with Python's line endings."""
    texts = {}
    for file in dict.fromkeys(files):
        try:
            text = Path(file).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # deleted meanwhile, or in another encoding: no edit is proposed
        if text.splitlines() == text.split("\n")[: len(text.splitlines())]:
            texts[file] = text
    return texts


def proposed_count(dynamo: Dynamo) -> int:
    """Return for how many graph breaks and recompiling values there is an edit to try."""
    return len({entry.target for entry in proposed(dynamo, read_texts(files_of(dynamo)))})


def try_fixes(
    path: str, argv: Sequence[str], dynamo: Dynamo, first_seconds: float, say: Callable[[str], None]
) -> SearchResult:
    """Try edits of the script's files; `first_seconds` is the time of one run."""
    limit = max(LEAST_SECONDS, TIMES_LONGER * first_seconds)
    with tempfile.TemporaryDirectory(prefix="aotlens-fixes-") as folder:
        started = time.monotonic()
        runner = ChildRunner(path, tuple(argv), folder, limit, say)
        result = FixTrials(path, runner).find(dynamo, Limits())
        say(f"{counted(result.runs, 'run')} in {clock(time.monotonic() - started)}")
        return result
