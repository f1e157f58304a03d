"""Ask our solver about a target of a log, which the app cannot retrace."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from textual.app import App

from aotlens.errors import UserError
from tui.messages import LogAnswered
from tui.tracing import AnswerWhatIf

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model import Target

__all__ = ["LogQuestions"]


class LogQuestions:
    """The questions about a log or a saved report."""

    def __init__(self, app: App[int], name: str, answer: AnswerWhatIf | None) -> None:
        self._app = app
        self._name = name
        self._answer = answer

    def ask(self, change: str, target: Target | None) -> None:
        """Weigh the change in a thread; where nothing can answer it here, name the command that does."""
        answer = self._answer
        if target is None or answer is None:
            command = shlex.join(["aotlens", "inspect", self._name, "--what-if", change])
            title = "The app cannot retrace a log"
            self._app.notify(f"To evaluate this change: {command}", title=title, markup=False)
            return

        def work() -> None:
            try:
                self._app.post_message(LogAnswered(target, answer(change, target)))
            except UserError as error:
                message = str(error)
                self._app.call_from_thread(
                    self._app.notify, message, title="No answer", severity="warning", markup=False
                )

        self._app.notify(change, title="Asking our solver", markup=False)
        self._app.run_worker(work, thread=True, exclusive=True, group="log")
