"""The app: owns the report, the trace and the chosen target; the workbench shows them.

Invariant: other threads reach the app by messages only (`messages.py`), and state is replaced only here.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import SystemCommand

from aotlens.view.progress import phase_of
from aotlens.view.tabs.source.files import SourceStore
from aotlens.view.tabs.trace_state import (
    NOT_RECORDED,
    TraceState,
    failure_count,
    log_text,
    progress_lines,
    state_parts,
    title_parts,
)
from tui import restore_environment
from tui.keys import APP_BINDINGS
from tui.panes.base import Subject
from tui.panes.registry import FIT_TAB, KERNELS_TAB
from tui.preferences import Preferences
from tui.terminal_app import TerminalApp
from tui.tracing import NONE, Questions
from tui.widgets.split import layouts
from tui.workbench import Workbench

if TYPE_CHECKING:  # the first paint comes before the report's records and the panes
    from collections.abc import Callable, Iterable

    from textual.binding import BindingType
    from textual.command import Provider
    from textual.screen import Screen

    from aotlens.model.failure import Failure
    from aotlens.model.report import Report, Target
    from aotlens.view.tabs.tables.rows import Line
    from tui.fitting import Fitting
    from tui.log_questions import LogAnswers, LogQuestions
    from tui.messages import (
        CancelWanted,
        EditsTried,
        GpuWanted,
        ListedTargetChosen,
        LogAnswered,
        LogTargetRead,
        ReportReady,
        SelectionChanged,
        SelectionWeighed,
        SelectionWriteWanted,
        SourceChanged,
        TargetChosen,
        TraceEnded,
        TraceProgress,
        TraceWanted,
        WhatIfWanted,
    )
    from tui.picking import GpuAnswer
    from tui.selecting import Selecting
    from tui.tracing import Tracing


restore_environment()

TICK_S = 0.2
"""The interval at which the clock of a running trace is drawn."""


def find_provider() -> type[Provider]:
    """Load what searches all tabs, when the palette is first opened."""
    from tui.finding import FindProvider

    return FindProvider


class AotlensApp(TerminalApp):
    """Source on the left, facts about it on the right."""

    TITLE = "aotlens"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {
        *TerminalApp.COMMANDS,
        find_provider,
    }
    BINDINGS: ClassVar[list[BindingType]] = [*APP_BINDINGS]

    def __init__(
        self,
        name: str,
        *,
        tracing: Tracing | None = None,
        report: Report | None = None,
        roots: tuple[str, ...] = (),
        fitting: Fitting | None = None,
    ) -> None:
        super().__init__()
        self.subject_name = name
        """The script, or the report's file, as the user named it."""
        self.tracing = tracing
        self.log_answers: LogAnswers | None = None
        """Reads more of an open log; None for a saved report and a script."""
        self.report = report
        self.earlier: tuple[str, Report] | None = None
        """The report that `x` compares with, and its name: that of `compare_with`, else the trace before."""
        self._compares_with_file = False
        self.state = TraceState()
        self.target_index = 0
        self.output = ""
        self.sources = SourceStore(roots)
        self.workbench = Workbench(can_trace=tracing is not None, sources=self.sources, fitting=fitting)
        self.selecting: Selecting | None = None
        """Set with the tabs, for a script that can be traced."""
        self._what_if: tuple[str, ...] = ()
        """The what-ifs of the running trace, beside the policy itself."""
        self._has_questions = False
        """True if the trace answers a question; it then reports no edit."""
        self._started = 0.0
        self.use(Preferences())

    def use(self, preferences: Preferences) -> None:
        super().use(preferences)
        self.workbench.shares = layouts(self.remembered.shares)

    def get_default_screen(self) -> Screen[object]:
        return self.workbench

    def on_workbench_shown(self, event: Workbench.Shown) -> None:
        """Fill the first screen: the title, and the script."""
        if self.tracing is not None:
            self.workbench.source.open(self.subject_name.partition("::")[0], coloured=False)
        self._draw_title()
        self.workbench.load()

    def on_workbench_ready(self, event: Workbench.Ready) -> None:
        """Show the report, or start the trace."""
        from tui.selecting import Selecting  # with the tabs

        gc.enable()  # `aotlens tui` disables it until the tabs are there
        if self.tracing is not None:
            script = Path(self.subject_name.partition("::")[0])
            self.selecting = Selecting(self, self.tracing, script)
        self.set_interval(TICK_S, self._tick)
        for problem in self.settings.problems:
            self.notify(problem, title="Settings", severity="warning", timeout=10, markup=False)
        self.watch_server()
        if self.report is not None:
            if self.report.fit is not None and not self.report.targets:
                self.workbench.open_tab(FIT_TAB)  # a report of `aotlens fit` alone fills only this one
            self._take(self.report, NOT_RECORDED)
        elif self.tracing is not None:
            self.start_trace()
        self._draw_title()

    # Tracing.

    def start_trace(self, *, fresh: bool = False, questions: Questions = NONE) -> None:
        """Start a new trace; the old result stays, dimmed, until the answer arrives."""
        if self.tracing is None:
            return
        self._what_if = questions.what_if
        self._has_questions = questions != NONE
        self.state = TraceState("tracing", self.state.trace + 1)
        self._started = time.monotonic()
        self.workbench.show_tracing(has_result=self.report is not None)
        self.workbench.show_compiling(None)
        self._tick()
        self.tracing.start(self.state.trace, self.post_message, fresh, questions)

    def on_trace_progress(self, event: TraceProgress) -> None:
        if self._is_current(event.trace):
            phase = phase_of(event.stage, event.detail)
            self.state = self.state.reached(phase, self.elapsed_s)
            if phase.kind == "kernels":
                self.workbench.show_compiling(phase)
            self._tick()

    def on_trace_ended(self, event: TraceEnded) -> None:
        """Show the newest trace's answer; a stale one is dropped."""
        if not self._is_current(event.trace):
            return
        self.workbench.show_compiling(None)
        phase = "ready" if event.report is not None else "failed"
        self.state = replace(self.state, phase=phase, failure=event.failure, elapsed_ms=event.elapsed_ms)
        if event.report is not None:
            self._take(event.report, log_text(event.output, event.failure))
        elif self.report is not None and event.failure is not None and self._keeps_report(event.failure):
            self.workbench.end_tracing()
        elif event.failure is not None:
            self.workbench.show_failure(event.failure, log_text(event.output, event.failure))
        self._draw_title()

    def _keeps_report(self, failure: Failure) -> bool:
        """Return True if the old report stays: the trace was cancelled, or a question had no answer."""
        if self._what_if and failure.kind != "cancelled":
            self.notify(failure.message, title="No answer", severity="warning", markup=False)
        return failure.kind == "cancelled" or bool(self._what_if)

    def on_what_if_wanted(self, event: WhatIfWanted) -> None:
        if self.tracing is None:
            self._log_questions().ask(event.change, self.target)
            return
        self.start_trace(questions=Questions(what_if=(event.change,)))

    def on_log_answered(self, event: LogAnswered) -> None:
        """Show the target with the answer in its place, unless the log has grown since."""
        if self.report is not None and any(target is event.asked for target in self.report.targets):
            targets = tuple(
                event.target if target is event.asked else target for target in self.report.targets
            )
            self._take(replace(self.report, targets=targets), self.output, event.asked)

    def on_listed_target_chosen(self, event: ListedTargetChosen) -> None:
        self._log_questions().read(event.listed)

    def on_log_target_read(self, event: LogTargetRead) -> None:
        """Show the target, which is no longer only listed; a report that has it already stays."""
        if self.report is None or self.report.log is None or event.listed not in self.report.log.listed:
            return
        listed = tuple(row for row in self.report.log.listed if row != event.listed)
        removed = len(self.report.log.listed) - len(listed)
        log = replace(self.report.log, listed=listed, listed_count=self.report.log.listed_count - removed)
        self.target_index = len(self.report.targets)
        self.report = replace(self.report, targets=(*self.report.targets, *event.targets), log=log)
        self.workbench.show_targets(self.report, self.target_index)
        self._present(())

    def _log_questions(self) -> LogQuestions:
        from tui.log_questions import LogQuestions  # for logs only

        return LogQuestions(self, self.subject_name, self.log_answers)

    def on_gpu_wanted(self, event: GpuWanted) -> None:
        from tui.picking import GpuScreen  # a screen that few sessions open

        if self.tracing is not None:
            self.push_screen(GpuScreen(self.tracing.gpu), self._choose_gpu)

    def _choose_gpu(self, choice: GpuAnswer | None) -> None:
        """Trace for another GPU, in the tab that shows its kernels."""
        if choice is None or self.tracing is None or choice.name == self.tracing.gpu:
            return
        self.tracing.choose_gpu(choice.name)
        self.workbench.open_tab(KERNELS_TAB)
        self.start_trace()

    def on_selection_changed(self, event: SelectionChanged) -> None:
        if self.selecting is not None:
            self.selecting.weigh(event.change)

    def on_selection_weighed(self, event: SelectionWeighed) -> None:
        """Show the totals of the newest selection; those of an older one are dropped."""
        selecting, target = self.selecting, self.target
        if selecting is None or target is None or event.number != selecting.number:
            return
        from tui.panes.saved import SavedPane  # loaded already, with the other tabs

        self.workbench.query_one(SavedPane).show_answer(*selecting.answer_of(event, target))

    def on_selection_write_wanted(self, event: SelectionWriteWanted) -> None:
        if self.selecting is not None and self.target is not None:
            self.selecting.offer(self.target, event.nodes, event.answer, self.sources)

    def on_edits_tried(self, event: EditsTried) -> None:
        if self.selecting is not None and self.target is not None:
            self.selecting.tried(event, self.target, self.sources)

    def on_trace_wanted(self, event: TraceWanted) -> None:
        self.start_trace(fresh=True, questions=Questions(verify=event.verify))

    def on_source_changed(self, event: SourceChanged) -> None:
        self.start_trace()

    def on_cancel_wanted(self, event: CancelWanted) -> None:
        if self.state.phase == "tracing" and self.tracing is not None:
            self.tracing.cancel()
        self.workbench.cancel_measuring()

    def _is_current(self, trace: int) -> bool:
        return trace == self.state.trace and self.state.phase == "tracing"

    # Showing.

    def on_report_ready(self, event: ReportReady) -> None:
        """Show the report of a log that has grown; the shown target stays."""
        self._take(event.report, self.output, self.target)

    def on_target_chosen(self, event: TargetChosen) -> None:
        if event.index != self.target_index:
            self.target_index = event.index
            if event.jump is not None and self.report is not None:
                self.workbench.show_targets(self.report, event.index)
            self._present(())
        if event.jump is not None:
            self.workbench.jump(event.jump)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def target(self) -> Target | None:
        targets = self.report.targets if self.report else ()
        return targets[self.target_index] if self.target_index < len(targets) else None

    def _take(self, report: Report, output: str, shown: Target | None = None) -> None:
        """Replace the report, staying on the same target."""
        from aotlens.view.tabs.changes import changes, headline  # with the report's records

        before = self.target if self.state.phase == "ready" else shown
        self._remember_for_comparison(report)
        self.report, self.output = report, output
        # The records of a large report are a million live objects: scanning them for garbage would delay
        # keys by hundreds of milliseconds, again and again.
        gc.freeze()
        names = [target.qualname for target in report.targets]
        if before is None or names[self.target_index : self.target_index + 1] != [before.qualname]:
            self.target_index = names.index(before.qualname) if before and before.qualname in names else 0
        self.sources.forget()
        self.workbench.show_targets(report, self.target_index)
        same = before is not None and self.target is not None and before.qualname == self.target.qualname
        if not (same and before and self.target):
            self._present(())
            return
        if not self._has_questions:
            self.state = replace(self.state, change=headline(before, self.target))
        self._present(changes(before, self.target))

    def _present(self, changed: tuple[Line, ...]) -> None:
        if self.report is not None:
            from aotlens.model.report import Target  # with all records

            target = self.target or Target(self.subject_name, self.subject_name, "direct", "inference", None)
            can_trace = self.tracing is not None
            subject = Subject(self.report, target, self.sources, changed, self.output, can_trace)
            self.workbench.show_subject(subject)
        self._draw_title()

    def _tick(self) -> None:
        # The timer may fire once more while the screen is taken down.
        if self.state.phase == "tracing" and self.workbench.is_whole:
            self._draw_title()
            self.workbench.show_progress(progress_lines(self.subject_name, self.state, self.elapsed_s))

    def _draw_title(self) -> None:
        left = title_parts(self.subject_name, self.report, self.target)
        right = state_parts(self.state, self.report, self.elapsed_s)
        failed = self.state.has_failed or (self.report is not None and failure_count(self.report) > 0)
        self.workbench.show_title(left, right, is_failure=failed)

    # Comparing.

    def compare_with(self, name: str, report: Report) -> None:
        """Open the comparison with this report as soon as there is one to compare; call it before the app
        runs."""
        self.earlier, self._compares_with_file = (name, report), True

    def _remember_for_comparison(self, new: Report) -> None:
        """Keep the report that `new` replaces, or open the comparison with the first one."""
        is_first = self.report is None or self.report is new
        if self._compares_with_file and is_first:
            self.call_after_refresh(self.action_compare)
        elif self.report is not None and not is_first and not self._compares_with_file:
            self.earlier = ("the trace before", self.report)

    def action_compare(self) -> None:
        """Show the lines of the earlier report beside those of this one."""
        if self.report is None or self.earlier is None:
            self.notify("nothing to compare with: start with --against FILE, or retrace", markup=False)
            return
        from aotlens.compare.side_by_side import side_by_side  # with the records and their differences
        from tui.comparing import ComparisonScreen

        name, earlier = self.earlier
        comparison = side_by_side(earlier, self.report, (name, self.subject_name))
        self.push_screen(ComparisonScreen(comparison, self.target.qualname if self.target else ""))

    # Commands.

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the palette's commands: tabs, targets, the theme, and what every key does."""
        from tui.commands import commands  # with every tab

        yield from commands(self, self.workbench, self.report.targets if self.report is not None else ())
