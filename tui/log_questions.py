"""Questions about a log, which the app cannot retrace: our solver's answers, and targets not read yet.

Invariant: each answer is found in a thread and arrives as a message, so that keys are answered meanwhile.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.app import App
from textual.message import Message

from aotlens.errors import UserError
from tui.messages import LogAnswered, LogTargetRead

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model import Target
    from aotlens.model.log import ListedTarget

__all__ = ["LogAnswers", "LogQuestions"]


@dataclass(frozen=True, slots=True)
class LogAnswers:
    """What reads more of an open log; both raise UserError where there is no answer."""

    what_if: Callable[[str, Target], Target]
    """Adds our solver's answer about a change of the policy to a target."""
    read: Callable[[ListedTarget], tuple[Target, ...]]
    """Reads a target that was only listed."""


class LogQuestions:
    """The questions about a log or a saved report."""

    def __init__(self, app: App[int], name: str, answers: LogAnswers | None) -> None:
        self._app = app
        self._name = name
        self._answers = answers

    def ask(self, change: str, target: Target | None) -> None:
        """Weigh the change in a thread; where nothing can answer it here, name the command that does."""
        answers = self._answers
        if target is None or answers is None:
            command = shlex.join(["aotlens", "inspect", self._name, "--what-if", change])
            title = "The app cannot retrace a log"
            self._app.notify(f"To evaluate this change: {command}", title=title, markup=False)
            return
        self._app.notify(change, title="Asking our solver", markup=False)
        self._answer(lambda: LogAnswered(target, answers.what_if(change, target)))

    def read(self, listed: ListedTarget) -> None:
        """Read a listed target in a thread; where the log is not open, name the command that does."""
        answers = self._answers
        if answers is None:
            command = shlex.join(["aotlens", "tui", f"{self._name}::{listed.compile_id}"])
            title = "This target was not read"
            self._app.notify(f"To read it from the log: {command}", title=title, markup=False)
            return
        self._answer(lambda: LogTargetRead(listed, answers.read(listed)))

    def _answer(self, find: Callable[[], Message]) -> None:
        """Post the answer, or a notice that says why there is none."""

        def work() -> None:
            try:
                self._app.post_message(find())
            except UserError as error:
                self._app.call_from_thread(
                    self._app.notify, str(error), title="No answer", severity="warning", markup=False
                )

        self._app.run_worker(work, thread=True, exclusive=True, group="log")
