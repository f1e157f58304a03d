"""The one screen: source, tabs, and the links between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.message import Message

from aotlens.view.tabs.source.files import SourceStore
from aotlens.view.tabs.tables.rows import Jump, Line, Link, Part
from tui.keys import WORKBENCH_BINDINGS, bind
from tui.layout import WORKBENCH_CSS, WorkbenchLayout
from tui.messages import CancelWanted, GpuWanted, ListedTargetChosen, TargetChosen, TraceWanted
from tui.panes.base import Pane, Subject
from tui.panes.registry import CHOICES, TAB_KEYS, TABS
from tui.panes.waiting import FailurePane, ProgressPane
from tui.widgets.bars import ChoiceBar, TitleBar
from tui.widgets.code import CodeView
from tui.widgets.filter_box import FilterBox, Searchable
from tui.widgets.row_list import RowList

if TYPE_CHECKING:  # the first paint comes before the report's records and the panes
    from aotlens.model.failure import Failure
    from aotlens.model.report import Report
    from aotlens.view.progress import Phase
    from aotlens.view.tabs.targets import TargetRow
    from tui.fitting import Fitting
    from tui.panes.diagnostics import DiagnosticsPane

WITHOUT_RESULT = ("log", "step")
"""Tabs that have something to show after a failed trace; the others show the failure."""


class Workbench(WorkbenchLayout):
    """Source on the left, tabs on the right; below each other where the terminal is narrow."""

    DEFAULT_CSS = WORKBENCH_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            bind(f"tab.{tab.name}", tab.key, f"tab({index})", ("", f"Open the tab {tab.label}."))
            for index, tab in enumerate(TABS)
        ),
        *WORKBENCH_BINDINGS,
    ]

    class Shown(Message):
        """The first screen is there, without the tabs' content; the app fills it, then calls `load`."""

    class Ready(Message):
        """Every tab is loaded."""

    def __init__(self, *, can_trace: bool, sources: SourceStore, fitting: Fitting | None = None) -> None:
        super().__init__(sources)
        self.can_trace = can_trace
        self.fitting = fitting
        self.subject: Subject | None = None
        self.target_rows: tuple[TargetRow, ...] = ()
        """The rows of the tree of targets."""
        self.tab_index = 0
        self.is_loaded = False
        """True once every tab is loaded, which begins after the first paint."""
        self._has_only_failed = False
        """True while there is no result to show, because the trace failed."""

    def on_mount(self) -> None:
        self.query_one("#targets").border_title = "Targets"
        self.query_one("#tabs", ChoiceBar).show(CHOICES, 0)
        self.app.post_message(self.Shown())

    def load(self) -> None:
        """Load what the first paint does not wait for: the colours of the source, then the tabs."""
        self.call_after_refresh(self._colour)

    def _colour(self) -> None:
        self.source.code.colour()
        self.call_after_refresh(self.run_worker, self._load_tabs)

    async def _load_tabs(self) -> None:
        """Load and mount one tab after the other, so that keys are answered in between."""
        for tab in TABS:
            await self.results.add_content(tab.pane_class()(id=tab.name))
        from tui.panes.step import StepPane  # no tab is loaded before the first paint

        self.query_one(StepPane).fitting = self.fitting
        self.is_loaded = True
        self.app.post_message(self.Ready())

    # What the app says.

    @property
    def pane(self) -> Pane:
        """Return the open tab."""
        return self.query_one(f"#{TABS[self.tab_index].name}", Pane)

    def show_title(self, left: tuple[Part, ...], right: tuple[Part, ...], *, is_failure: bool) -> None:
        title = self.query_one(TitleBar)
        title.left, title.right = left, right
        title.set_class(is_failure, "-failed")

    def show_tracing(self, *, has_result: bool) -> None:
        """Show that a trace began: the old result stays, dimmed."""
        self.set_class(has_result, "-stale")
        if not has_result:
            self.results.current = "progress"

    def show_compiling(self, phase: Phase | None) -> None:
        """Show the kernels that the running trace has compiled; None once it has ended."""
        from tui.panes.kernels import KernelsPane  # loaded already, with the other tabs

        self.query_one(KernelsPane).show_compiling(phase)

    def cancel_measuring(self) -> None:
        """Stop the measurement of the training step, if one runs."""
        from tui.panes.step import StepPane  # loaded already, with the other tabs

        self.query_one(StepPane).cancel()

    def end_tracing(self) -> None:
        """Show that the trace was cancelled: the old result stays."""
        self.remove_class("-stale")

    def show_progress(self, lines: tuple[Line, ...]) -> None:
        if self.results.current == "progress":
            self.query_one(ProgressPane).show(lines)

    def show_targets(self, report: Report, index: int) -> None:
        from aotlens.view.tabs.targets import row_of, target_listing, target_rows  # with the records

        self.target_rows = target_rows(report)
        self.targets.show(target_listing(report))
        self.targets.place_cursor(row_of(report, index))
        self.targets.set_class(len(self.target_rows) > 1, "-several")

    def show_subject(self, subject: Subject) -> None:
        """Show another target, or a new trace of the same one."""
        self.remove_class("-stale")
        self._has_only_failed = False
        self.subject = subject
        self.source.show_target(subject.report, subject.target)
        focused = self.focused
        self.open_tab(self.tab_index, focus=focused is None or not focused.is_on_screen)
        if isinstance(focused, RowList) and focused.row_count:
            self.source.light(focused.row_link(focused.cursor))

    def show_failure(self, failure: Failure, output: str) -> None:
        """Show the reason, beside the line that caused the failure; the old result stays one key away."""
        self.remove_class("-stale")
        self.query_one(FailurePane).show(failure)
        self.results.current = "failure"
        self.query_one("#tabs", ChoiceBar).current = -1
        from aotlens.model.report import Report, Target  # with all records

        self._has_only_failed = self._has_only_failed or self.subject is None
        empty = Subject(Report("", "", ""), Target("", "", "direct", "inference", None), self.sources)
        self.subject = replace(self.subject or empty, output=output)
        if failure.file:
            self.sources.forget()
            self.source.show_failure(failure)
        self.query_one(FailurePane).query(CodeView).first().focus()

    # Tabs.

    def open_tab(self, index: int, *, focus: bool = True, key: str = "") -> None:
        """Open a tab, fill it if it is empty, and go to the row of `key`; before the first result, choose
        the tab that will be open then.
        """
        self.tab_index = index
        self.query_one("#tabs", ChoiceBar).current = index
        if self.subject is None:
            return
        if self._has_only_failed and TABS[index].name not in WITHOUT_RESULT:
            self.results.current = "failure"
            return
        self.results.current = self.pane.id
        self.pane.show(self.subject)
        if focus:
            self.set_focus(self.pane.main())  # at once: the next key may be there already
        if key:
            self.pane.reveal(key)
        self.refresh_bindings()

    def jump(self, jump: Jump) -> None:
        """Open the tab of a jump, and go to its row."""
        index = next(index for index, tab in enumerate(TABS) if jump.tab == tab.name)
        self.open_tab(index, key=jump.key)

    def _follow(self, jump: Jump) -> None:
        """Go where a line leads, which may be in another target."""
        if jump.target is None:
            self.jump(jump)
        else:
            self.post_message(TargetChosen(jump.target, jump))

    def choose_target(self, index: int) -> None:
        rows = (
            position
            for position, row in enumerate(self.target_rows)
            if row.index == index and not row.signatures
        )
        self.targets.place_cursor(next(rows, 0), notify=True)

    def action_tab(self, index: int) -> None:
        self.remove_class("-only-left")
        self.lay_out()
        self.open_tab(index)

    def on_choice_bar_picked(self, event: ChoiceBar.Picked) -> None:
        self.open_tab(event.index)

    # Links.

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """Highlight the source of the selected row."""
        if event.sender is self.targets and self.targets.record_index is not None:
            row = self.target_rows[self.targets.record_index]
            if row.listed is None:
                self.post_message(TargetChosen(row.index))
        self.source.light(event.link)

    def on_pane_lit(self, event: Pane.Lit) -> None:
        self.source.light(event.link)

    def on_code_view_moved(self, event: CodeView.Moved) -> None:
        """Mark the rows of the line under the source's cursor."""
        event.sender.light(Link(), follow=False)
        if self.subject is not None and self.results.current == self.pane.id:
            self.pane.mark_line(event.file, event.line)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        if event.sender is self.targets:
            self._open_listed()
            self.targets.remove_class("-wanted")
            self.pane.main().focus()
            return
        if event.jump is not None:
            self._follow(event.jump)
        elif event.link != Link():
            self.source.code.focus()

    def _open_listed(self) -> None:
        """Ask for the target of the row under the cursor, if it was not read yet."""
        index = self.targets.record_index
        listed = self.target_rows[index].listed if index is not None else None
        if listed is not None:
            self.post_message(ListedTargetChosen(listed))

    # Filter.

    def action_filter(self) -> None:
        """Filter the rows of the list that has the focus; search in a text."""
        candidates = (self.focused, self.pane.main())
        searched = (widget for widget in candidates if isinstance(widget, Searchable))
        self.query_one(FilterBox).begin(next(searched, None))

    def on_filter_box_find_wanted(self, event: FilterBox.FindWanted) -> None:
        from tui.finding import finder  # with the searched tables

        self.app.push_screen(finder())

    def action_escape(self) -> None:
        """Close the filter, else clear it, else cancel the running trace."""
        if not self.query_one(FilterBox).clear_search():
            self.post_message(CancelWanted())

    # The other keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("filter", "keys") and not self.is_loaded:
            return False
        return self.can_trace if action in ("retrace", "verify", "gpu") else True

    def action_retrace(self) -> None:
        self.post_message(TraceWanted())

    def action_gpu(self) -> None:
        """Choose the GPU whose kernels are shown."""
        self.post_message(GpuWanted())

    def action_verify(self) -> None:
        """Compare the first call of each target with eager."""
        self.post_message(TraceWanted(verify=True))

    def action_keys(self) -> None:
        """All keys that act where the cursor is."""
        from tui.screens import key_help  # a screen that few sessions open

        self.app.push_screen(key_help(self, TABS[self.tab_index].label, TAB_KEYS))

    def action_copy(self) -> None:
        """Copy the row or line under the cursor to the terminal's clipboard."""
        text = ""
        if isinstance(self.focused, RowList) and self.focused.row_count:
            text = self.focused.row_copy(self.focused.cursor)
        elif isinstance(self.focused, CodeView) and self.focused.text.raw:
            text = self.focused.text.raw[self.focused.cursor - 1]
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(text, title="Copied", timeout=2, markup=False)

    def action_save_svg(self) -> None:
        """Save the screen as a picture, in the working directory."""
        tab = TABS[self.tab_index].name
        name = self.subject.target.name if self.subject else "trace"
        safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in name)
        saved = self.app.save_screenshot(f"aotlens-{safe}-{tab}.svg", ".")
        self.notify(saved, title="Saved", timeout=3, markup=False)

    def action_edit(self) -> None:
        """Open the editor at the line under the source's cursor."""
        from tui.editing import open_editor  # with the differences of fixes

        cursor = self.source.cursor_span()
        path = self.sources.path(cursor.file) if cursor.file else None
        if path is None:
            self.notify("no source file is open", severity="warning")
        elif open_editor(self.app, path, cursor.line):
            self.sources.forget()
            self.source.open(cursor.file, cursor.line)

    def on_diagnostics_pane_fix_wanted(self, event: DiagnosticsPane.FixWanted) -> None:
        from tui.editing import confirm_fix  # with the differences of fixes

        confirm_fix(self.app, event.fixes, self.sources, self.fix_made)

    def fix_made(self, file: str) -> None:
        """Show the new text after a fix was written, and trace it."""
        self.sources.forget()
        self.source.open(file, self.source.code.cursor)
        if self.can_trace:
            self.post_message(TraceWanted())
