"""The memory of a script's step: its last result, and runs of `aotlens fit` when the user asks.

Invariant: opening a file runs nothing; it shows a stored result only while the result's files are unchanged.
"""

import asyncio
import os
from functools import partial

from pygls.lsp.server import LanguageServer

from aotlens.model.failure import Failure
from aotlens.model.fit import Fit
from aotlens.model.report import Report
from aotlens.worker.fit_command import fit_answer, fit_words
from aotlens.worker.fit_results import open_fit_results
from lsp_server.progress import ProgressBar
from lsp_server.script_runs import ScriptRun, cancel_runs, output_of
from lsp_server.settings import Settings
from lsp_server.views import Views

__all__ = ["StepRuns"]

STAGE = "running the script until its steps repeat"
CANCELLED = Failure("cancelled", "cancelled")


class StepRuns:
    """The runs of one server, at most one for each script."""

    def __init__(self, server: LanguageServer, views: Views) -> None:
        self._server = server
        self._views = views
        self._runs: list[ScriptRun] = []

    async def run(self, path: str, settings: Settings, cwd: str | None) -> Fit | Failure:
        """Measure the step of a script and hold the result; a newer run for the script cancels this one."""
        self.cancel(path=path)
        title = f"Measuring the step of {os.path.basename(path)}"
        run = ScriptRun(path, ProgressBar(self._server, self._views.client, title))
        self._runs.append(run)
        run.bar.report(STAGE)
        run.bar.start()
        ending = "failed"
        try:
            words = fit_words(path, settings.args, settings.gpu, settings.python)
            output = await output_of(run, words, cwd or os.path.dirname(path), self._server)
            if output is None:
                ending = "cancelled"
                return CANCELLED
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(None, fit_answer, path, output.data, output.errors)
            if isinstance(answer, Failure) or answer.fit is None:
                return answer if isinstance(answer, Failure) else CANCELLED
            await self._hold(path, answer)
            ending = "done"
            return answer.fit
        except asyncio.CancelledError:
            run.stop()
            raise
        finally:
            self._runs.remove(run)
            run.bar.end(ending)

    async def attach(self, path: str, settings: Settings) -> bool:
        """Hold the stored result of a script; return False if there is none whose files are unchanged."""
        loop = asyncio.get_running_loop()
        report = await loop.run_in_executor(None, _stored, path, settings.args)
        if report is None or path in self._views.steps:
            return False
        await self._hold(path, report)
        return True

    async def _hold(self, path: str, report: Report) -> None:
        snapshot = self._views.snapshot(path)
        try:
            prepare = partial(self._views.prepare, report, path, snapshot.lines.traced)
            indices = await asyncio.get_running_loop().run_in_executor(None, prepare)
            self._views.hold_step(path, report, indices, snapshot)
        finally:
            self._views.drop(snapshot)

    def cancel(self, *, path: str | None = None, token: str | int | None = None) -> int:
        """Stop the runs of a script or of a progress bar, or all; return how many."""
        return cancel_runs(self._runs, path, token)

    def end(self) -> None:
        """End all runs by force."""
        for run in self._runs:
            run.kill()


def _stored(path: str, argv: tuple[str, ...]) -> Report | None:
    results = open_fit_results()
    stored = None if results is None else results.find(path, argv)
    return None if stored is None else stored[0]
