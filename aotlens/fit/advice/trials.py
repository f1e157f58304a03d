"""Run copies of a script with edits, and compare their memory and their training.

Invariant: no file of the user's is written; a trial that fails or takes too long is an outcome, not an error.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aotlens.fit.advice.jobs import OUTCOME, NamesJob, NamesOutcome, TrainingJob, TrainingOutcome
from aotlens.fit.job import FitJob
from aotlens.model.codec import decode_record
from aotlens.model.fit import Fit
from aotlens.process import cores
from aotlens.session.job_folder import PRINTED, read_answer, write_job
from aotlens.session.why.observation import read_observation
from aotlens.view.quantities import limit_text

__all__ = ["Trials", "trials"]

LIMIT_S = 120.0
"""The time limit of one run."""
SERVER = "aotlens.fit.advice.server"
MOST_CHANGED = 1e-3
"""The largest part of the peak by which constants of packages may change it."""
MOST_SIDE_BY_SIDE = 8
"""How many trials run at once, on a machine with so many cores."""

Texts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A job that the server was asked for."""

    number: int
    folder: str


@dataclass(slots=True)
class Trials:
    """All runs for one script; mutable, because runs are numbered and the reference is made once."""

    job: FitJob
    folder: str
    process: "subprocess.Popen[str]"
    limit_s: float = LIMIT_S
    runs: int = 0
    _fits: dict[Texts, Fit | None] = field(default_factory=dict)
    _started: dict[Texts, Run] = field(default_factory=dict)
    """Memory that nobody has asked for yet."""
    _answers: dict[int, int | None] = field(default_factory=dict)
    """The exit codes of the requests that were answered, by number."""

    def start_fits(self, each: Iterable[Mapping[str, str]]) -> None:
        """Start to measure the memory of edited scripts that will be asked for, as far as cores are free."""
        for texts in each:
            if len(self._started) >= min(cores(), MOST_SIDE_BY_SIDE):
                return
            key = tuple(sorted(texts.items()))
            if key not in self._fits and key not in self._started:
                self._started[key] = self._start_fit(texts)

    def fit(self, texts: Mapping[str, str]) -> Fit | None:
        """Return the memory of the edited script; None if it fails or its steps do not repeat."""
        key = tuple(sorted(texts.items()))
        if key not in self._fits:
            run = self._started.pop(key, None) or self._start_fit(texts)
            self._fits[key] = self._fit_of(run)
        return self._fits[key]

    def _fit_of(self, run: Run) -> Fit | None:
        observed = read_observation(self._finished(run))
        if observed is None or observed.failure is not None or observed.report is None:
            return None
        return observed.report.fit

    def _start_fit(self, texts: Mapping[str, str]) -> Run:
        return self._start("fit", replace(self.job, texts=dict(texts), to_end=False))

    def import_libraries(self, names: Sequence[str], unedited: Fit) -> None:
        """Import what the script imports once for all trials, if the script's memory is the same with it.

        Packages that ask for a GPU when they are imported find none here, so an emulated one excludes this.
        """
        packages = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"torch"}
        if not packages or self.job.gpu is not None:
            return
        self.runs += 1
        self._ask({"number": self.runs, "libraries": list(names)})
        fit = self._fit_of(self._start_fit({})) if self._answer(self.runs) == 0 else None
        if fit is None or not _are_alike(fit, unedited):
            self.close()
            self.process = _server()

    def close(self) -> None:
        """End the server, and the trials that run."""
        with self.process:
            pass

    def names(self) -> NamesOutcome:
        """Return the names at the first backward of the script as it is."""
        job = NamesJob(self.job.path, self.job.argv, self.job.gpu, self.job.is_real)
        data = read_answer(self._run("names", job), OUTCOME)
        return NamesOutcome() if data is None else decode_record(NamesOutcome, data)

    def train(
        self,
        calls: int,
        texts: Mapping[str, str] | None = None,
        is_reference: bool = False,
        is_double: bool = False,
    ) -> TrainingOutcome:
        """Run the script on real tensors for so many calls of `step`."""
        reference = str(Path(self.folder, f"reference-{'double' if is_double else 'default'}.pt"))
        job = TrainingJob(
            self.job.path,
            self.job.argv,
            self.job.gpu,
            calls,
            reference,
            is_reference,
            dict(texts or {}),
            is_double,
        )
        folder = self._run("training", job)
        data = read_answer(folder, OUTCOME)
        if data is None:
            return TrainingOutcome(
                f"it ends without a result, or takes longer than {limit_text(self.limit_s)}"
            )
        printed = Path(folder, PRINTED).read_text(encoding="utf-8", errors="replace")
        return replace(decode_record(TrainingOutcome, data), printed=tuple(printed.splitlines()))

    def _run(self, kind: str, job: Any) -> str:
        return self._finished(self._start(kind, job))

    def _start(self, kind: str, job: Any) -> Run:
        self.runs += 1
        run = Run(self.runs, tempfile.mkdtemp(dir=self.folder))
        write_job(run.folder, job)
        self._ask({"number": run.number, "kind": kind, "folder": run.folder, "limit_s": self.limit_s})
        return run

    def _ask(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        if self.process.poll() is None:  # the jobs of a server that was killed have no result
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()

    def _finished(self, run: Run) -> str:
        """Wait for the end of a run, and return its folder."""
        self._answer(run.number)
        return run.folder

    def _answer(self, number: int) -> int | None:
        """Wait for the answer to a request: its exit code, None if there is none."""
        assert self.process.stdout is not None
        while number not in self._answers:
            line = self.process.stdout.readline()
            if not line:
                return None
            answered, code = json.loads(line)
            self._answers[answered] = code
        return self._answers[number]


@contextmanager
def trials(job: FitJob) -> Iterator[Trials]:
    """Start the server of the trials; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="aotlens-advice-") as folder:
        runs = Trials(job, folder, _server())
        try:
            yield runs
        finally:
            runs.close()


def _are_alike(fit: Fit, other: Fit) -> bool:
    """Return True if two steps run the same operators, in nearly the same memory.

    Constants that a package makes when it is imported are not counted where it was imported before.
    """
    operators = [[(point.op, point.span) for point in each.curve] for each in (fit, other)]
    changed_bytes = abs(fit.step_peak_bytes - other.step_peak_bytes)
    return operators[0] == operators[1] and changed_bytes <= MOST_CHANGED * other.step_peak_bytes


def _server() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
