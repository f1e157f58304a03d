"""Runs of `aotlens why --try-fixes` for the user, and their reports.

Invariant: each run is a process group of its own; it ends with its request, a cancellation or the server.
"""

import asyncio
import os
import sys
from functools import partial

from pygls.lsp.server import LanguageServer

from aotlens.errors import AotlensError
from aotlens.model.codec import loads
from aotlens.model.dynamo import Dynamo
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.worker.fit_command import START_CLI
from lsp_server.index import FileIndex
from lsp_server.progress import ProgressBar
from lsp_server.script_runs import ScriptRun, cancel_runs, output_of
from lsp_server.settings import Settings
from lsp_server.views import Views

__all__ = ["FixTrials"]

PROGRESS = "aotlens: trying fixes: "
FIRST_STAGE = "the script as it is"
CANCELLED = Failure("cancelled", "cancelled")


class FixTrials:
    """The runs of one server, at most one for each script."""

    def __init__(self, server: LanguageServer, views: Views) -> None:
        self._server = server
        self._views = views
        self._runs: list[ScriptRun] = []

    async def run(self, path: str, settings: Settings, cwd: str | None) -> Dynamo | Failure:
        """Try fixes for a script and hold those that passed; a newer run for the script cancels this one."""
        self.cancel(path=path)
        name = os.path.basename(path)
        run = ScriptRun(path, ProgressBar(self._server, self._views.client, f"Trying fixes for {name}"))
        self._runs.append(run)
        snapshot = self._views.snapshot(path)
        run.bar.report(FIRST_STAGE)
        run.bar.start()
        ending = "failed"
        try:
            answer = await self._report(run, settings, cwd or os.path.dirname(path))
            if isinstance(answer, Failure):
                ending = "cancelled" if answer.kind == "cancelled" else ending
                return answer
            lines = snapshot.lines.traced
            indices = await asyncio.get_running_loop().run_in_executor(
                None, partial(self._indices, answer, path, lines)
            )
            self._views.hold_tested(path, answer, indices, snapshot)
            ending = "done"
            return answer.dynamo or Dynamo()
        except asyncio.CancelledError:
            run.stop()
            raise
        finally:
            self._runs.remove(run)
            self._views.drop(snapshot)
            run.bar.end(ending)

    def cancel(self, *, path: str | None = None, token: str | int | None = None) -> int:
        """Stop the runs of a script or of a progress bar, or all; how many."""
        return cancel_runs(self._runs, path, token)

    def end(self) -> None:
        """End all runs by force."""
        for run in self._runs:
            run.kill()

    def _indices(self, report: Report, path: str, lines: tuple[str, ...]) -> dict[str, FileIndex]:
        return self._views.prepare(report, path, lines)

    async def _report(self, run: ScriptRun, settings: Settings, cwd: str) -> Report | Failure:
        words = [settings.python or sys.executable, "-P", "-c", START_CLI, "why", "--try-fixes"]
        words += ["--format", "json", run.path, *settings.args]

        def show(line: str) -> None:
            if line.startswith(PROGRESS):
                run.bar.report(line.removeprefix(PROGRESS))

        output = await output_of(run, words, cwd, self._server, show)
        if output is None:
            return CANCELLED
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, _read, run.path, output.data, output.errors)


def _read(path: str, data: bytes, errors: str) -> Report | Failure:
    """Return the report on stdout, or the reason why there is none."""
    last = errors.strip().rpartition("\n")[2]
    try:
        report = loads(data.decode()) if data else None
    except (AotlensError, ValueError) as error:
        return Failure("internal", f"the report of aotlens why cannot be read: {error}", exit_code=3)
    if report is None:
        return Failure("user", f"no fixes were tried: {last or 'aotlens why ended without a report'}")
    if report.incomplete is not None:
        return Failure("user", f"no fixes were tried, because {os.path.basename(path)} fails: {last}")
    return report
