"""The memory of a script's step: its last result, and runs of `aotlens fit` when the user asks.

Invariant: opening a file runs nothing; it shows a stored result only while the result's files are unchanged.
"""

import asyncio
import os

from aotlens.model.failure import Failure
from aotlens.model.fit import Fit
from aotlens.model.report import Report
from aotlens.worker.fit_command import fit_answer, fit_words
from aotlens.worker.fit_results import open_fit_results
from lsp_server.runs.script_runs import Command, ScriptRuns
from lsp_server.settings import Settings

__all__ = ["StepRuns"]

PROGRESS = "aotlens: testing edits: "
STAGE = "running the script until its steps repeat"


class StepRuns(ScriptRuns):
    """The runs that measure steps."""

    async def run(
        self, path: str, settings: Settings, cwd: str | None, *, advises: bool = False
    ) -> Fit | Failure:
        """Measure the step of a script and hold the result; a newer run for the script cancels this one.

        With `advises`, edits that lower the peak are tested too.
        """
        options = ("--advise",) if advises else ()
        words = fit_words(path, settings.args, settings.gpu, settings.python, options)
        title = f"{'Testing edits of' if advises else 'Measuring the step of'} {os.path.basename(path)}"
        command = Command(words, title, STAGE, fit_answer, PROGRESS)
        answer = await self._report(path, cwd, command, self._views.hold_step)
        if isinstance(answer, Failure):
            return answer
        assert answer.fit is not None, "fit_answer returns no other report"
        return answer.fit

    async def attach(self, path: str, settings: Settings) -> bool:
        """Hold the stored result of a script; return False if there is none whose files are unchanged."""
        loop = asyncio.get_running_loop()
        report = await loop.run_in_executor(None, _stored, path, settings.args)
        if report is None or path in self._views.steps:
            return False
        snapshot = self._views.snapshot(path)
        try:
            await self._hold(report, snapshot, self._views.hold_step)
        finally:
            self._views.drop(snapshot)
        return True


def _stored(path: str, argv: tuple[str, ...]) -> Report | None:
    results = open_fit_results()
    stored = None if results is None else results.find(path, argv)
    return None if stored is None else stored[0]
