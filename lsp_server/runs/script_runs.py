"""A command of aotlens that runs the user's script: its process, its report, its cancellation.

Invariant: each run is a process group of its own; it ends with its request, a cancellation or the server.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from aotlens.model.failure import Failure
from aotlens.model.report import Report
from lsp_server.index import FileIndex
from lsp_server.progress import ProgressBar
from lsp_server.views import HeldTrace, Snapshot, Views

__all__ = ["Command", "ScriptRuns"]

GRACE_S = 3.0
"""From the interrupt, at which the command removes its files, to the end by force."""
CHUNK_BYTES = 1 << 16
LONGEST_LOG = 20_000
"""Characters of the script's output that go to the editor's log."""
CANCELLED = Failure("cancelled", "cancelled")

Hold = Callable[[str, Report, dict[str, FileIndex], Snapshot], HeldTrace]
"""Shows the report of a script, instead of that of an earlier run."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line that runs a script and prints a report."""

    words: list[str]
    title: str
    """Of the progress bar."""
    stage: str
    """The stage that the bar shows first."""
    read: Callable[[str, bytes, str], Report | Failure]
    """Returns the report of a script on stdout, or the reason on stderr why there is none."""
    progress: str | None = None
    """What begins a line of stderr that names the next stage; None if no line does."""


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
        """Send a signal to the command's group, and so to the script, which is a child of the command.

        Windows has no groups: there only the command is ended, whatever the signal.
        """
        process = self.process
        if process is None or process.returncode is not None:
            return
        if os.name == "posix":
            os.killpg(process.pid, number)
        else:
            process.terminate()


class ScriptRuns:
    """The runs of one command of one server, at most one for each script."""

    def __init__(self, server: LanguageServer, views: Views) -> None:
        self._server = server
        self._views = views
        self._runs: list[_Run] = []

    def cancel(self, *, path: str | None = None, token: str | int | None = None) -> int:
        """Stop the runs of a script or of a progress bar, or all; return how many."""
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

    async def _report(self, path: str, cwd: str | None, command: Command, hold: Hold) -> Report | Failure:
        """Run the command and hold its report; a newer run for the script cancels this one."""
        self.cancel(path=path)
        run = _Run(path, ProgressBar(self._server, self._views.client, command.title))
        self._runs.append(run)
        snapshot = self._views.snapshot(path)
        run.bar.report(command.stage)
        run.bar.start()
        ending = "failed"
        try:
            answer = await self._answer(run, cwd or os.path.dirname(path), command)
            if isinstance(answer, Failure):
                ending = "cancelled" if answer.kind == "cancelled" else ending
                return answer
            await self._hold(answer, snapshot, hold)
            ending = "done"
            return answer
        except asyncio.CancelledError:
            run.stop()
            raise
        finally:
            self._runs.remove(run)
            self._views.drop(snapshot)
            run.bar.end(ending)

    async def _hold(self, report: Report, snapshot: Snapshot, hold: Hold) -> None:
        prepare = partial(self._views.prepare, report, snapshot.path, snapshot.lines.traced)
        indices = await asyncio.get_running_loop().run_in_executor(None, prepare)
        hold(snapshot.path, report, indices, snapshot)

    async def _answer(self, run: _Run, cwd: str, command: Command) -> Report | Failure:
        """Start the command and read its output, which is logged."""
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        run.process = process = await asyncio.create_subprocess_exec(
            *command.words, cwd=cwd, stdin=none, stdout=pipe, stderr=pipe, start_new_session=True
        )
        if run.is_cancelled:
            run.stop()
        assert process.stdout is not None
        assert process.stderr is not None
        data, errors = await asyncio.gather(
            process.stdout.read(), _stderr(process.stderr, run.bar, command.progress)
        )
        await process.wait()
        if run.is_cancelled:
            return CANCELLED
        message = f"output of {run.path}:\n{errors[-LONGEST_LOG:]}"
        self._server.window_log_message(types.LogMessageParams(types.MessageType.Log, message))
        return await asyncio.get_running_loop().run_in_executor(None, command.read, run.path, data, errors)


async def _stderr(stream: asyncio.StreamReader, bar: ProgressBar, progress: str | None) -> str:
    """Return the last part of stderr, and show the stages in it as they arrive."""
    text, rest = "", ""
    while chunk := await stream.read(CHUNK_BYTES):
        rest += chunk.decode(errors="replace")
        *lines, rest = rest.split("\n")
        for line in lines:
            if progress is not None and line.startswith(progress):
                bar.report(line.removeprefix(progress))
        text = (text + "".join(f"{line}\n" for line in lines))[-2 * LONGEST_LOG :]
    return text + rest
