"""Measures the step of a script in a child process, when the user asks; finds its last result otherwise.

Invariant: nothing here touches a widget, and `find` runs no code of the user's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.message import Message

from aotlens.model.failure import Failure
from tui.tracing import TraceTarget

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Report

__all__ = ["CommandFitting", "Fitting", "StepAnswer", "StepFound"]

Post = Callable[[Message], object]
GRACE_S = 3.0
"""From the interrupt of a cancelled run to its end by force."""
CANCELLED = Failure("cancelled", "cancelled")


class StepFound(Message):
    """The last result, if there is one and its files are unchanged."""

    def __init__(self, report: Report | None) -> None:
        super().__init__()
        self.report = report


class StepAnswer(Message):
    """A run has ended."""

    def __init__(self, answer: Report | Failure) -> None:
        super().__init__()
        self.answer = answer


class Fitting(Protocol):
    """The tab's interface to `aotlens fit`; tests replace it."""

    def find(self, post: Post) -> None: ...

    def start(self, post: Post) -> None: ...

    def cancel(self) -> None: ...


class CommandFitting:
    """Runs the command for one script, at most once at a time."""

    def __init__(self, target: TraceTarget) -> None:
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False

    def find(self, post: Post) -> None:
        """Post the last result; in a thread, because its files are read to compare them."""
        threading.Thread(target=self._find, args=(post,), daemon=True).start()

    def start(self, post: Post) -> None:
        """Run the script and post the answer."""
        from aotlens.worker.fit_command import fit_words  # with all records

        self.cancel()
        self._is_cancelled = False
        target = self._target
        pipe = subprocess.PIPE
        self._process = process = subprocess.Popen(
            fit_words(target.path, target.argv, target.options.gpu),
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        threading.Thread(target=self._wait, args=(process, post), daemon=True).start()

    def cancel(self) -> None:
        """Interrupt the run, and end it by force if it does not follow."""
        process = self._process
        if process is not None and process.poll() is None:
            self._is_cancelled = True
            _send(process, signal.SIGINT)
            force = threading.Timer(GRACE_S, _kill, (process,))
            force.daemon = True
            force.start()

    def close(self) -> None:
        """End the run by force: the app ends."""
        if self._process is not None:
            _kill(self._process)

    def _find(self, post: Post) -> None:
        from aotlens.worker.fit_results import open_fit_results  # with all records

        results = open_fit_results()
        stored = None if results is None else results.find(self._target.path, self._target.argv)
        post(StepFound(None if stored is None else stored[0]))

    def _wait(self, process: subprocess.Popen[bytes], post: Post) -> None:
        from aotlens.worker.fit_command import fit_answer  # with all records

        data, errors = process.communicate()
        if process is not self._process:
            return
        if self._is_cancelled:
            post(StepAnswer(CANCELLED))
        else:
            post(StepAnswer(fit_answer(self._target.path, data, errors.decode(errors="replace"))))


def _kill(process: subprocess.Popen[bytes]) -> None:
    _send(process, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Reach the script too, which is a child of the command."""
    if process.poll() is not None:
        return
    if os.name == "posix":
        os.killpg(process.pid, number)
    else:
        process.terminate()
