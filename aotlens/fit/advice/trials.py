"""Run copies of a script with edits, and compare their memory and their training.

Invariant: no file of the user's is written; a trial that fails or takes too long is an outcome, not an error.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
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
    _ended: set[int] = field(default_factory=set)

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
            observed = read_observation(self._finished(run))
            if observed is None or observed.failure is not None or observed.report is None:
                self._fits[key] = None
            else:
                self._fits[key] = observed.report.fit
        return self._fits[key]

    def _start_fit(self, texts: Mapping[str, str]) -> Run:
        return self._start("fit", replace(self.job, texts=dict(texts), to_end=False))

    def names(self) -> NamesOutcome:
        """Return the names at the first backward of the script as it is."""
        job = NamesJob(self.job.path, self.job.argv, self.job.gpu, self.job.is_real)
        data = read_answer(self._run("names", job), OUTCOME)
        return NamesOutcome() if data is None else decode_record(NamesOutcome, data)

    def train(
        self, calls: int, texts: Mapping[str, str] | None = None, is_reference: bool = False
    ) -> TrainingOutcome:
        """Run the script on real tensors for so many calls of `step`."""
        reference = str(Path(self.folder, "reference.pt"))
        job = TrainingJob(
            self.job.path, self.job.argv, self.job.gpu, calls, reference, is_reference, dict(texts or {})
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
        request = {"number": run.number, "kind": kind, "folder": run.folder, "limit_s": self.limit_s}
        assert self.process.stdin is not None
        if self.process.poll() is None:  # the jobs of a server that was killed have no result
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        return run

    def _finished(self, run: Run) -> str:
        """Wait for the end of a run, and return its folder."""
        assert self.process.stdout is not None
        while run.number not in self._ended:
            answer = self.process.stdout.readline()
            if not answer:
                break
            self._ended.add(json.loads(answer)[0])
        return run.folder


@contextmanager
def trials(job: FitJob) -> Iterator[Trials]:
    """Start the server of the trials; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="aotlens-advice-") as folder:
        command = [sys.executable, "-m", SERVER]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield Trials(job, folder, process)
