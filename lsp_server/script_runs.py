"""A command of aotlens that runs the user's script: its process, its output, its cancellation.

Invariant: each run is a process group of its own; it ends with its request, a cancellation or the server.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from lsp_server.progress import ProgressBar

__all__ = ["Output", "ScriptRun", "cancel_runs", "output_of"]

GRACE_S = 3.0
"""From the interrupt, at which the command removes its files, to the end by force."""
CHUNK_BYTES = 1 << 16
LONGEST_LOG = 20_000
"""Characters of the script's output that go to the editor's log."""


@dataclass(frozen=True, slots=True)
class Output:
    """What an ended command wrote."""

    data: bytes
    """On stdout: the report."""
    errors: str
    """On stderr, the last part."""


@dataclass(slots=True, eq=False)
class ScriptRun:
    """One run for one script."""

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


def cancel_runs(runs: Sequence[ScriptRun], path: str | None = None, token: str | int | None = None) -> int:
    """Stop the runs of a script or of a progress bar, or all; return how many."""
    stopped = [
        run
        for run in runs
        if (path is None or run.path == path) and (token is None or run.bar.token == token)
    ]
    for run in stopped:
        run.stop()
    return len(stopped)


async def output_of(
    run: ScriptRun,
    words: Sequence[str],
    cwd: str,
    server: LanguageServer,
    on_line: Callable[[str], None] = lambda line: None,
) -> Output | None:
    """Start the command and return its output, which is logged; None if the run was cancelled.

    `on_line` gets each line of stderr as it arrives.
    """
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    run.process = process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, stdin=none, stdout=pipe, stderr=pipe, start_new_session=True
    )
    if run.is_cancelled:
        run.stop()
    assert process.stdout is not None
    assert process.stderr is not None
    data, errors = await asyncio.gather(process.stdout.read(), _stderr(process.stderr, on_line))
    await process.wait()
    if run.is_cancelled:
        return None
    message = f"output of {run.path}:\n{errors[-LONGEST_LOG:]}"
    server.window_log_message(types.LogMessageParams(types.MessageType.Log, message))
    return Output(data, errors)


async def _stderr(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> str:
    text, rest = "", ""
    while chunk := await stream.read(CHUNK_BYTES):
        rest += chunk.decode(errors="replace")
        *lines, rest = rest.split("\n")
        for line in lines:
            on_line(line)
        text = (text + "".join(f"{line}\n" for line in lines))[-2 * LONGEST_LOG :]
    return text + rest
