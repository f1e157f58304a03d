"""Run copies of a script with edits, and compare their memory and their training.

Invariant: no file of the user's is written; a trial that fails or takes too long is an outcome, not an error.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aotlens.fit.advice.jobs import OUTCOME, NamesJob, NamesOutcome, TrainingJob, TrainingOutcome
from aotlens.fit.job import FitJob
from aotlens.model.codec import decode_record
from aotlens.model.fit import Fit
from aotlens.session.job_folder import PRINTED, read_answer, write_job
from aotlens.session.why.observation import read_observation
from aotlens.view.quantities import limit_text

__all__ = ["Trials", "trials"]

LIMIT_S = 120.0
"""The time limit of one run."""
SERVER = "aotlens.fit.advice.server"


@dataclass(slots=True)
class Trials:
    """All runs for one script; mutable, because runs are numbered and the reference is made once."""

    job: FitJob
    folder: str
    process: "subprocess.Popen[str]"
    limit_s: float = LIMIT_S
    runs: int = 0
    _fits: dict[tuple[tuple[str, str], ...], Fit | None] = field(default_factory=dict)

    def fit(self, texts: Mapping[str, str]) -> Fit | None:
        """Return the memory of the edited script; None if it fails or its steps do not repeat."""
        key = tuple(sorted(texts.items()))
        if key not in self._fits:
            self._fits[key] = self._fit(texts)
        return self._fits[key]

    def _fit(self, texts: Mapping[str, str]) -> Fit | None:
        folder = self._run("fit", replace(self.job, texts=dict(texts), to_end=False))
        observed = read_observation(folder)
        if observed is None or observed.failure is not None or observed.report is None:
            return None
        return observed.report.fit

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
        self.runs += 1
        folder = tempfile.mkdtemp(dir=self.folder)
        write_job(folder, job)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:  # the jobs of a server that was killed have no result
            request = json.dumps({"kind": kind, "folder": folder, "limit_s": self.limit_s})
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            self.process.stdout.readline()
        return folder


@contextmanager
def trials(job: FitJob) -> Iterator[Trials]:
    """Start the server of the trials; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="aotlens-advice-") as folder:
        command = [sys.executable, "-m", SERVER]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield Trials(job, folder, process)
