"""Opens the app on a script, a report or a log, and leaves the terminal in order."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.errors import UserError
from tui.app import AotlensApp
from tui.endings import ended_by_signals, exit_code
from tui.fitting import CommandFitting
from tui.messages import ReportReady
from tui.preferences import (
    Preferences,
    read_remembered,
    read_settings,
    settings_file,
    state_file,
    write_remembered,
)
from tui.served import end_after_server, is_served
from tui.tracing import TraceTarget, WorkerTracing
from tui.watching import watch_sources

if TYPE_CHECKING:  # the first paint comes before the report's records
    from aotlens.model.report import Report
    from tui.log_questions import LogAnswers

Named = tuple[str, "Report"]
"""A report and what the user calls it."""


def run(
    asked: TraceTarget | None,
    report_file: str | None = None,
    watch: bool = False,
    against: Named | None = None,
) -> int:
    """Open the app on a script, traced in the background, or on a saved report; return the exit code.

    Raises:
        UserError: there is no terminal to draw on, or nothing to show.
    """
    report = None if report_file is None else read_report(report_file)
    _need_terminal(f"use `aotlens inspect {asked.path}` here" if asked else "--serve shows it in a browser")
    if report_file is not None and asked is None:
        roots = (str(Path(report_file).resolve().parent),)
        app = with_preferences(AotlensApp(report_file, report=report, roots=roots))
        return shown(comparing(app, against))
    if asked is None:
        raise UserError(
            "nothing to show: name a script, for example `aotlens tui train.py`, or a report with --report"
            " FILE"
        )
    tracing, fitting = WorkerTracing(asked), CommandFitting(asked)
    roots = (str(Path(asked.path).resolve().parent),)
    app = AotlensApp(str(asked), tracing=tracing, report=report, roots=roots, fitting=fitting)
    comparing(with_preferences(app), against)
    stop = threading.Event()
    if watch:
        threading.Thread(target=watch_sources, args=(asked.path, app.post_message, stop), daemon=True).start()
    try:
        return shown(app)
    finally:
        stop.set()
        fitting.close()
        tracing.close()


def comparing(app: AotlensApp, against: Named | None) -> AotlensApp:
    """Return the app, which then opens with the comparison."""
    if against is not None:
        app.compare_with(*against)
    return app


Follow = Callable[[Callable[["Report"], object], threading.Event], None]
"""Calls back with each new report, until the event is set."""


def run_report(
    title: str,
    report: Report,
    follow: Follow | None = None,
    against: Named | None = None,
    answers: LogAnswers | None = None,
) -> int:
    """Open the app on the report of a log, and on those that follow it; return the exit code.

    `answers` reads more of the log on request.
    """
    _need_terminal(f"use `aotlens inspect {title}` here")
    app = AotlensApp(title, report=report, roots=(str(Path.cwd()),))
    app.log_answers = answers
    comparing(with_preferences(app), against)
    stop = threading.Event()
    if follow is not None:
        arguments = (lambda now: app.post_message(ReportReady(now)), stop)
        threading.Thread(target=follow, args=arguments, daemon=True).start()
    try:
        return shown(app)
    finally:
        stop.set()


def with_preferences(app: AotlensApp) -> AotlensApp:
    """Return the app with the user's settings and the choices of the last session."""
    app.use(Preferences(read_settings(settings_file()), read_remembered(state_file())))
    return app


def _need_terminal(instead: str) -> None:
    if not is_served() and (not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"):
        raise UserError(f"the terminal app needs a terminal with cursor control; {instead}")


def read_report(file: str) -> Report:
    """Return a saved report, read without torch and the worker; raise UserError for a file without one."""
    from aotlens.model.codec import loads  # with all records

    try:
        return loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not a report: it is not UTF-8 text (byte {error.start})") from error


def shown(app: AotlensApp) -> int:
    """Run the app to its end; return the exit code: 3 when it failed itself, a shell's for a signal."""

    async def play() -> None:
        with ended_by_signals(app.end):
            await app.run_async()

    if is_served():
        end_after_server()
    asyncio.run(play())
    if not is_served():
        problem = write_remembered(state_file(), app.remembered)
        if problem is not None:
            sys.stderr.write(f"aotlens: {problem}\n")
    if app.return_code:
        return 3
    return 0 if app.ended_by is None else exit_code(app.ended_by)
