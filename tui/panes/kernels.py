"""The kernels of every phase: a table, the cost of the selected one, and its texts."""

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from aotlens.model.report import Kernel
from aotlens.view.kernels import TRITON, first_launch, kernel_texts
from aotlens.view.progress import Phase
from aotlens.view.tabs.kernels import (
    compiling_lines,
    kernel_details,
    kernel_listing,
    kernel_totals,
    line_details,
    line_listing,
)
from aotlens.view.tabs.source.files import from_text
from aotlens.view.tabs.tables.rows import Line
from tui.keys import LEFT, RIGHT, bind
from tui.panes.base import Pane, Subject
from tui.widgets.bars import ChoiceBar
from tui.widgets.code import CodeView
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable

PYTHON = frozenset({TRITON, "source"})
"""Languages that are coloured as Python."""
LIBRARY = "(a library kernel: its code is not available)"


class KernelsPane(Pane):
    TAB: ClassVar[str] = "kernels"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("kernels.text", "p", "program", ("Text", "Show the code of the kernel, or the table.")),
        bind("kernels.previous", LEFT, "language(-1)", ("Before", "Show the previous language."), shown="["),
        bind(
            "kernels.next", RIGHT, "language(1)", ("Next", "Show the next language of the kernel."), shown="]"
        ),
        bind("kernels.gpu", "c", "screen.gpu", ("GPU", "Choose the GPU whose kernels are shown.")),
        bind("kernels.lines", "l", "lines", ("By line", "Show the cost of each line, or each kernel.")),
    ]
    DEFAULT_CSS = """
    KernelsPane #kernels-total { height: auto; max-height: 2; }
    KernelsPane #compiling { height: auto; max-height: 50%; display: none; }
    KernelsPane.-compiling #compiling { display: block; }
    KernelsPane #kernel-table { height: 1fr; }
    KernelsPane #line-table { height: 1fr; display: none; }
    KernelsPane #languages, KernelsPane #kernel-text { display: none; }
    KernelsPane.-lines #kernel-table { display: none; }
    KernelsPane.-lines #line-table { display: block; }
    KernelsPane #languages { padding: 0 1; }
    KernelsPane.-text #languages, KernelsPane.-text #kernel-text { display: block; }
    KernelsPane.-text #kernel-table { height: 30%; }
    KernelsPane.-text .detail { display: none; }
    KernelsPane #kernel-text { height: 1fr; border-top: solid $panel; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.language = ""
        self.compiled: tuple[str, ...] = ()
        """The kernels that the running trace has generated."""

    def compose(self) -> ComposeResult:
        yield LineList(id="kernels-total")
        yield LineList(id="compiling")
        yield VirtualTable(id="kernel-table")
        yield VirtualTable(id="line-table")
        yield ChoiceBar("›", id="languages")
        yield CodeView(id="kernel-text")
        yield LineList(id="kernel-detail", classes="detail")

    def on_mount(self) -> None:
        self.query_one("#kernels-total").can_focus = False
        self.query_one("#compiling").can_focus = False

    def fill(self, subject: Subject) -> None:
        self.query_one("#kernels-total", LineList).show((kernel_totals(subject.target),))
        self.query_one("#line-table", VirtualTable).show(line_listing(subject.target))
        self.query_one("#kernel-table", VirtualTable).show(kernel_listing(subject.target))
        self._describe()

    def show_compiling(self, phase: Phase | None) -> None:
        """Show the kernels that a running trace has generated so far; None once it has ended."""
        if phase is None:
            self.compiled = ()
        elif phase.kernel and phase.kernel not in self.compiled:
            self.compiled = (*self.compiled, phase.kernel)
        self.set_class(phase is not None, "-compiling")
        if phase is not None:
            self.query_one("#compiling", LineList).show(tuple(compiling_lines(phase, self.compiled)))

    def main(self) -> Widget:
        return self.query_one("#line-table" if self.has_class("-lines") else "#kernel-table")

    def reveal(self, key: str) -> None:
        self.set_class(key.startswith("line:"), "-lines")
        for table in self.query(VirtualTable):
            table.select(key, notify=True)
        self._describe()
        self.main().focus()

    def mark_line(self, file: str, line: int) -> None:
        for table in self.query(VirtualTable):
            table.mark_line(file, line)
        self._describe()

    @property
    def kernel(self) -> Kernel | None:
        """Return the kernel under the cursor."""
        index = self.query_one("#kernel-table", VirtualTable).record_index
        if index is None or self.subject is None:
            return None
        return self.subject.target.kernels[index]

    # The table.

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if isinstance(event.sender, VirtualTable):
            self._describe()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Go to the row of the kernel that a line of the details names, on Enter."""
        if event.jump is not None and event.jump.tab == self.TAB:
            event.stop()
            self.reveal(event.jump.key)

    def _describe(self) -> None:
        self.query_one("#kernel-detail", LineList).show(tuple(self._details()))
        if self.has_class("-text"):
            self._show_text()

    def _details(self) -> Iterator[Line]:
        subject, kernel = self.subject, self.kernel
        if subject is None:
            return
        if self.has_class("-lines"):
            index = self.query_one("#line-table", VirtualTable).record_index
            if index is not None:
                yield from line_details(subject.target.gpu_lines[index], subject.target)
        elif kernel is not None:
            yield from kernel_details(kernel, subject.target)

    def action_lines(self) -> None:
        """Between the kernels and the lines of the source, the costliest first."""
        self.remove_class("-text")
        self.toggle_class("-lines")
        self.main().focus()
        self._describe()

    # The texts.

    def action_program(self) -> None:
        """Between the kernel's details and its text."""
        self.remove_class("-lines")
        self.toggle_class("-text")
        self.main().focus()
        if self.has_class("-text"):
            self._show_text()

    def action_language(self, step: int) -> None:
        """Show the text of another compiler pass; the first key shows the text."""
        names = [name for name, _ in self._texts()]
        if not self.has_class("-text"):
            self.action_program()
        elif self.language in names:
            self._choose(max(0, min(len(names) - 1, names.index(self.language) + step)))

    def on_choice_bar_picked(self, event: ChoiceBar.Picked) -> None:
        event.stop()
        self._choose(event.index)

    def _choose(self, index: int) -> None:
        self.language = self._texts()[index][0]
        self._show_text()

    def _texts(self) -> tuple[tuple[str, str], ...]:
        if self.kernel is None or self.subject is None:
            return ()
        return kernel_texts(first_launch(self.kernel, self.subject.target.kernels))

    def _show_text(self) -> None:
        """Show the selected kernel in the chosen language, or in its first one."""
        texts = dict(self._texts())
        if self.language not in texts:
            self.language = next(iter(texts), "")
        names = list(texts)
        choices = tuple(("", name, name) for name in names)
        self.query_one("#languages", ChoiceBar).show(
            choices, names.index(self.language) if self.language else 0
        )
        code = self.query_one("#kernel-text", CodeView)
        text = texts.get(self.language, LIBRARY)
        code.show(from_text(text, "<kernel>"), coloured=self.language in PYTHON)

    def on_code_view_moved(self, event: CodeView.Moved) -> None:
        event.stop()  # a line of a kernel has no line of the user's
