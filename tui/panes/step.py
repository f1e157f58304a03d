"""The memory of a training step: the last result of `aotlens fit`, which a key runs again.

Invariant: opening the tab runs nothing of the user's; it looks for a result whose files are unchanged.
"""

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from aotlens.model.failure import Failure
from aotlens.model.fit import Fit
from aotlens.model.report import Report
from aotlens.view.tabs.fit import (
    failure_lines,
    fit_kind_listing,
    fit_line_listing,
    fit_notes,
    fit_plot,
    fit_summary,
)
from aotlens.view.tabs.tables.rows import Line, Part
from tui.fitting import Fitting, StepAnswer, StepFound
from tui.keys import bind
from tui.panes.base import Pane, Subject
from tui.widgets.lines import LineList
from tui.widgets.table import VirtualTable

MARGIN, PLOT_HEIGHT, LOW_FROM = 4, 6, 24
"""Cells beside the plot, its lines, and the height of the pane from which on plot and notes are there."""
KEY = "x"
NOTHING = "No result of `aotlens fit` for this script and its arguments, or a file of it has changed since"
HOW = f"{KEY} runs the script on tensors without memory until its steps repeat, in a process of its own"
RUNNING = "Measuring the step of this script in a process of its own; Escape cancels"
ONLY_SHOWN = "A saved report or a log is only shown; `aotlens fit SCRIPT` measures the step of a script"


class StepPane(Pane):
    TAB: ClassVar[str] = "step"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("step.measure", KEY, "measure", ("Measure", "Measure the memory of the training step."))
    ]
    DEFAULT_CSS = """
    StepPane #step-summary { height: auto; max-height: 9; }
    StepPane.-low #step-summary { max-height: 3; }
    StepPane #step-plot { height: auto; max-height: 9; }
    StepPane #step-lines { height: 3fr; border-top: solid $panel; }
    StepPane #step-kinds { height: 2fr; border-top: solid $panel; }
    StepPane #step-notes { height: auto; max-height: 8; border-top: solid $panel; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.fitting: Fitting | None = None
        """Set by the workbench; None for a report without a script."""
        self.report: Report | None = None
        """The result that is shown."""
        self.message = ""
        """Why the last run has no result."""
        self.is_measuring = False

    @property
    def fit(self) -> Fit | None:
        return self.report.fit if self.report is not None else None

    def compose(self) -> ComposeResult:
        yield LineList(id="step-summary")
        yield LineList(id="step-plot")
        yield VirtualTable(id="step-lines")
        yield VirtualTable(id="step-kinds")
        yield LineList(id="step-notes")

    def on_mount(self) -> None:
        self.query_one("#step-plot").can_focus = False

    def on_resize(self) -> None:
        self._fit_height()

    def fill(self, subject: Subject) -> None:
        if self.fitting is not None and not self.is_measuring:
            self.fitting.find(self.post_message)
        elif subject.report.fit is not None:
            self.report = subject.report
        self._draw()

    def main(self) -> Widget:
        return self.query_one("#step-lines" if self.report is not None else "#step-summary")

    def mark_line(self, file: str, line: int) -> None:
        for table in self.query(VirtualTable):
            table.mark_line(file, line)

    def action_measure(self) -> None:
        """Run `aotlens fit` on the script."""
        if self.fitting is None:
            self.notify(ONLY_SHOWN, severity="warning", markup=False)
        elif not self.is_measuring:
            self.is_measuring, self.message = True, ""
            self.fitting.start(self.post_message)
            self._draw()

    def cancel(self) -> None:
        """Stop the run; the result before it stays."""
        if self.fitting is not None and self.is_measuring:
            self.fitting.cancel()

    def on_step_found(self, event: StepFound) -> None:
        event.stop()
        self.report = event.report
        self._draw()

    def on_step_answer(self, event: StepAnswer) -> None:
        event.stop()
        self.is_measuring = False
        if isinstance(event.answer, Failure):
            self.message = "" if event.answer.kind == "cancelled" else event.answer.message
        else:
            self.report = event.answer
        self._draw()

    def _draw(self) -> None:
        fit = self.fit
        self.query_one("#step-summary", LineList).show(tuple(self._summary()))
        for name in ("#step-lines", "#step-kinds"):
            self.query_one(name).display = fit is not None
        self._fit_height()
        if fit is None:
            return
        home = self.subject.target.file if self.subject is not None else ""
        if not home and fit.at.span is not None:  # a report of `aotlens fit` alone has no targets
            home = fit.at.span.file
        self.query_one("#step-lines", VirtualTable).show(fit_line_listing(fit, home))
        self.query_one("#step-kinds", VirtualTable).show(fit_kind_listing(fit))
        self.query_one("#step-notes", LineList).show(tuple(self._notes(fit)))
        self.call_after_refresh(self._focus_rows)

    def _focus_rows(self) -> None:
        """Move the focus from the state, which has it while there are no rows, to the rows."""
        if self.query_one("#step-summary").has_focus and self.report is not None:
            self.main().focus()

    def _summary(self) -> tuple[Line, ...]:
        state = self._state()
        if self.report is None or self.fit is None:
            return state
        return (*state, *fit_summary(self.fit, self.report.incomplete))

    def _notes(self, fit: Fit) -> Iterator[Line]:
        """Yield the memory snapshot that the step was compared with, if any, then the notes of the step."""
        if self.report is not None:
            yield from failure_lines(self.report.memory_snapshots, self.report.failure_matches)
        yield from fit_notes(fit)

    def _state(self) -> tuple[Line, ...]:
        """Return the lines about the run, or about what is missing."""
        if self.is_measuring:
            return (Line((Part(RUNNING, "warning"),), wrap=True),)
        if self.message:
            return (Line((Part(self.message, "error"),), wrap=True), Line((Part(HOW, "dim"),), wrap=True))
        if self.report is not None:
            return ()
        if self.fitting is None:
            return (Line((Part(ONLY_SHOWN, "dim"),), wrap=True),)
        return (Line((Part(NOTHING),), wrap=True), Line((Part(HOW, "dim"),), wrap=True))

    def _fit_height(self) -> None:
        """Leave the room of a low pane to the tables: without plot and notes."""
        is_low = self.size.height < LOW_FROM
        self.set_class(is_low, "-low")
        plot, fit = self.query_one("#step-plot", LineList), self.fit
        self.query_one("#step-notes").display = plot.display = fit is not None and not is_low
        if fit is not None:
            plot.show(tuple(fit_plot(fit, max(30, self.size.width - MARGIN), PLOT_HEIGHT)))
