"""Run a user's script in a child process: the worker's, or that of `aotlens why` and `aotlens fit`.

Invariant: only these functions start a process that runs user code, and both end it if the client cancels the
call or the time limit is exceeded.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aotlens.cli.targets import check_script
from aotlens.errors import UserError
from aotlens.mcp.reports import ReportStore, StoredReport
from aotlens.mcp.requests import FitRequest, WhyRequest
from aotlens.model.codec import decode
from aotlens.model.failure import Failure
from aotlens.model.files import load_report
from aotlens.view.quantities import limit_text
from aotlens.worker.client import WorkerClient
from aotlens.worker.process import end_tree
from aotlens.worker.protocol import Answer, Progress, TraceRequest

__all__ = ["Call", "ScriptRun", "measure_step", "observe", "trace"]

LONGEST_OUTPUT = 4_000
"""Characters of a script's output in an answer; the end is more useful than the start."""


@dataclass(slots=True)
class Call:
    """One tool call in progress."""

    report_progress: Callable[[str], None] = lambda text: None
    _stop: list[Callable[[], None]] = field(default_factory=list)
    _is_cancelled: bool = False

    def on_cancel(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the client cancels, at once if it already has."""
        self._stop.append(stop)
        if self._is_cancelled:
            stop()

    def cancel(self) -> None:
        self._is_cancelled = True
        for stop in self._stop:
            stop()


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A new report, and what the script printed."""

    stored: StoredReport
    output: str


def trace(worker: WorkerClient, reports: ReportStore, request: TraceRequest, call: Call) -> ScriptRun:
    """Trace in the worker's child.  Raises UserError with the command's message if there is no report."""
    check_script(request.path)
    started = time.time()

    def on_progress(progress: Progress) -> None:
        call.report_progress(f"{progress.stage} {progress.detail}".strip())

    job = worker.submit(request, on_progress)
    call.on_cancel(job.cancel)
    answer: Answer = job.future.result()
    if answer.report is None:
        assert answer.failure is not None
        raise UserError(_failure_text(answer.failure, answer.output), kind=answer.failure.kind)
    traceback = answer.failure.traceback if answer.failure is not None else ""
    return ScriptRun(reports.add(decode(answer.report), started), shortened(answer.output + traceback))


def _failure_text(failure: Failure, output: str) -> str:
    """Return what a command prints: the message, the user's traceback, and the end of the script's output."""
    parts = [failure.message, failure.traceback.rstrip()]
    if output:
        parts.append(f"The script printed:\n{shortened(output)}")
    return "\n".join(part for part in parts if part)


def observe(reports: ReportStore, request: WhyRequest, script: str, call: Call) -> ScriptRun:
    """Run `aotlens why`.  Raises UserError with its message if it makes no report."""
    command = _Command("why", _why_options(request), script, request.argv, request.time_limit_s)
    return _reported(reports, command, call)


def measure_step(reports: ReportStore, request: FitRequest, script: str, call: Call) -> ScriptRun:
    """Run `aotlens fit`.  Raises UserError with its message if it makes no report."""
    options = [*(["--gpu", request.gpu] if request.gpu else []), *(["--real"] if request.real else [])]
    return _reported(reports, _Command("fit", options, script, request.argv, request.time_limit_s), call)


@dataclass(frozen=True, slots=True)
class _Command:
    """A command of ours that runs a script and writes a report."""

    name: str
    options: list[str]
    script: str
    argv: tuple[str, ...]
    time_limit_s: float


def _reported(reports: ReportStore, command: _Command, call: Call) -> ScriptRun:
    check_script(command.script)
    started = time.time()
    with tempfile.TemporaryDirectory(prefix="aotlens-mcp-") as folder:
        file, log = Path(folder, "report.json"), Path(folder, "log")
        options = ["--format", "json", "-o", str(file), *command.options]
        own = [command.name, *options, command.script, "--", *command.argv]
        call.report_progress(f"running {command.script}")
        with log.open("wb") as output:
            _run([sys.executable, "-P", "-m", "aotlens", *own], output.fileno(), command.time_limit_s, call)
        printed = log.read_text(encoding="utf-8", errors="replace")
        if not file.exists():
            ended = f"`aotlens {command.name} {command.script}` ended without a report"
            raise UserError(_error_of(printed) or ended)
        return ScriptRun(reports.add(load_report(file), started), shortened(printed))


def _why_options(request: WhyRequest) -> list[str]:
    """Return the options.  Raises UserError for two questions that need separate runs."""
    modes = [name for name in ("try_fixes", "forecast", "vary") if getattr(request, name)]
    if len(modes) > 1:
        raise UserError(f"{' and '.join(modes)} are runs of their own; ask for one at a time")
    return [
        *(["--try-fixes"] if request.try_fixes else []),
        *(["--forecast"] if request.forecast else []),
        *(word for varied in request.vary for word in ("--vary", varied)),
        *(["--guards"] if request.guards else []),
    ]


def _run(command: list[str], output: int, time_limit_s: float, call: Call) -> None:
    """Run to the end or to the limit, and end everything that it started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    call.on_cancel(lambda: end_tree(process))
    try:
        process.wait(time_limit_s)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the script ran longer than {limit_text(time_limit_s)} and was stopped; a larger `time_limit_s`"
            " lets it run on",
            kind="timeout",
        ) from None
    finally:
        end_tree(process)
        process.wait()


def _error_of(printed: str) -> str:
    """Return the command's own message, which may have several lines, or the end of a crash's output."""
    _, separator, message = printed.rpartition("aotlens: error: ")
    return message.strip() if separator else shortened(printed).strip()


def shortened(output: str) -> str:
    """Return the end of a long output."""
    return output if len(output) <= LONGEST_OUTPUT else f"…{output[-LONGEST_OUTPUT:]}"
