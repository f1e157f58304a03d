"""Runs of `aotlens why --try-fixes` for the user, and their reports.

Invariant: each run is a process group of its own; it ends with its request, a cancellation or the server.
"""

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from aotlens.errors import AotlensError
from aotlens.model.codec import loads
from aotlens.model.dynamo import Dynamo
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.worker.fit_command import START_CLI
from lsp_server.index import FileIndex
from lsp_server.progress import ProgressBar
from lsp_server.settings import Settings
from lsp_server.views import Views

__all__ = ["FixTrials"]

GRACE_S = 3.0
"""From the interrupt, at which the command removes its files, to the end by force."""
PROGRESS = "aotlens: trying fixes: "
FIRST_STAGE = "the script as it is"
CHUNK_BYTES = 1 << 16
LONGEST_LOG = 20_000
"""Characters of the script's output that go to the editor's log."""
CANCELLED = Failure("cancelled", "cancelled")


@dataclass(slots=True, eq=False)
class _Run:
    path: str
    bar: ProgressBar
    process: asyncio.subprocess.Process | None = None
    is_cancelled: bool = False

    def stop(self) -> None:
        self.is_cancelled = True
        if self.process is not None and self.process.returncode is None:
            self.send(signal.SIGINT)
            asyncio.get_running_loop().call_later(GRACE_S, self.kill)

    def kill(self) -> None:
        if self.process is not None:
            self.send(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Reach the script too, which is a child of the command."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        if os.name == "posix":
            os.killpg(process.pid, number)
        else:
            process.terminate()


class FixTrials:
    """The runs of one server, at most one for each script."""

    def __init__(self, server: LanguageServer, views: Views) -> None:
        self._server = server
        self._views = views
        self._runs: list[_Run] = []

    async def run(self, path: str, settings: Settings, cwd: str | None) -> Dynamo | Failure:
        """Try fixes for a script and hold those that passed; a newer run for the script cancels this one."""
        self.cancel(path=path)
        name = os.path.basename(path)
        run = _Run(path, ProgressBar(self._server, self._views.client, f"Trying fixes for {name}"))
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
        stopped = [
            run
            for run in self._runs
            if (path is None or run.path == path) and (token is None or run.bar.token == token)
        ]
        for run in stopped:
            run.stop()
        return len(stopped)

    def end(self) -> None:
        """End all runs by force."""
        for run in self._runs:
            run.kill()

    def _indices(self, report: Report, path: str, lines: tuple[str, ...]) -> dict[str, FileIndex]:
        return self._views.prepare(report, path, lines)

    async def _report(self, run: _Run, settings: Settings, cwd: str) -> Report | Failure:
        words = [settings.python or sys.executable, "-P", "-c", START_CLI, "why", "--try-fixes"]
        words += ["--format", "json", run.path, *settings.args]
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        run.process = process = await asyncio.create_subprocess_exec(
            *words, cwd=cwd, stdin=none, stdout=pipe, stderr=pipe, start_new_session=True
        )
        if run.is_cancelled:
            run.stop()
        assert process.stdout is not None
        data, errors = await asyncio.gather(process.stdout.read(), self._stderr(run))
        await process.wait()
        if run.is_cancelled:
            return CANCELLED
        self._server.window_log_message(
            types.LogMessageParams(types.MessageType.Log, f"output of {run.path}:\n{errors[-LONGEST_LOG:]}")
        )
        return await asyncio.get_running_loop().run_in_executor(None, _read, run.path, data, errors)

    async def _stderr(self, run: _Run) -> str:
        """Return the command's stderr, and show the progress in it as it arrives."""
        assert run.process is not None
        assert run.process.stderr is not None
        text, rest = "", ""
        while chunk := await run.process.stderr.read(CHUNK_BYTES):
            rest += chunk.decode(errors="replace")
            *lines, rest = rest.split("\n")
            for line in lines:
                if line.startswith(PROGRESS):
                    run.bar.report(line.removeprefix(PROGRESS))
            text = (text + "".join(f"{line}\n" for line in lines))[-2 * LONGEST_LOG :]
        return text + rest


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
