"""The transforms one at a time: the changes of each, and one computation followed through all of them."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from aotlens.view.lineage import PARTITION, Lineage
from aotlens.view.stage_rows import AlignedRow, Alignment, aligned_stages
from aotlens.view.tabs.drawn_graph.graph import first_operator, node_listing
from aotlens.view.tabs.source.files import from_text
from aotlens.view.tabs.stages import (
    MARKS,
    DiffRecord,
    Run,
    change_line,
    diff_listing,
    diff_records,
    fate_listing,
    follow_lines,
    line_marks_of,
    program_text,
    stage_caption,
    stage_choices,
    stage_names,
)
from aotlens.view.tabs.tables.rows import Line
from tui.keys import LEFT, RIGHT, bind
from tui.panes.base import Pane, Subject
from tui.widgets.bars import ChoiceBar
from tui.widgets.code import CodeView
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable

FIRST_SHOWN = "functional"


class StagesPane(Pane):
    TAB: ClassVar[str] = "stages"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("stages.previous", LEFT, "stage(-1)", ("Before", "Go to the previous stage."), shown="["),
        bind("stages.next", RIGHT, "stage(1)", ("Next", "Go to the next stage."), shown="]"),
        bind(
            "stages.unfold", "u", "unfold", ("Unfold", "Show or fold unchanged nodes and identical layers.")
        ),
        bind("stages.text", "p", "program", ("Text", "Show the stage as Python text, or as a table.")),
    ]
    DEFAULT_CSS = """
    StagesPane ChoiceBar { padding: 0 1; }
    StagesPane #stage-caption { height: 1; }
    StagesPane #diff { height: 1fr; }
    StagesPane .detail { height: 12; }
    StagesPane #stage-text { display: none; }
    StagesPane.-text #stage-text { display: block; }
    StagesPane.-text #diff, StagesPane.-text #follow { display: none; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lineage: Lineage | None = None
        self.stage = ""
        self.followed: tuple[str, str] = ("", "")
        """Stage and node that the user chose; stepping through the stages stays on it."""
        self.here = ""
        """The name of that node in the open stage, where it may be in a fold."""
        self._opened_at = 0
        """The first row of an opened stage; merely reaching it does not follow its node."""
        self.unfolded = False
        self.records: tuple[DiffRecord, ...] = ()
        self._alignments: dict[str, Alignment | None] = {}

    def compose(self) -> ComposeResult:
        yield ChoiceBar("›", id="stage-bar")
        yield LineList(id="stage-caption")
        yield VirtualTable(id="diff")
        yield CodeView(id="stage-text")
        yield LineList(id="follow", classes="detail")

    def on_mount(self) -> None:
        self.query_one("#stage-caption").can_focus = False

    def fill(self, subject: Subject) -> None:
        self.lineage = Lineage(subject.target)
        self._alignments = {}
        names = stage_names(self.lineage)
        stage, name = self.followed
        if stage not in names or name not in self.lineage.nodes(self._real(stage)):
            self.followed = ("", "")
        first = FIRST_SHOWN if FIRST_SHOWN in names else next(iter(names), "")
        self._open(self.stage if self.stage in names else first)

    def main(self) -> Widget:
        return self.query_one("#stage-text" if self.has_class("-text") else "#diff")

    def reveal(self, key: str) -> None:
        """`stage/node`."""
        stage, _, name = key.rpartition("/")
        if self.lineage is not None and stage in stage_names(self.lineage):
            self.followed = (stage, name)
            self._open(stage)
            self._show_source()
        self.main().focus()

    def mark_line(self, file: str, line: int) -> None:
        self.query_one("#diff", VirtualTable).mark_line(file, line)
        self._describe()

    # Stages.

    def action_stage(self, step: int) -> None:
        if self.lineage is not None and self.stage:
            names = stage_names(self.lineage)
            self._open(names[max(0, min(len(names) - 1, names.index(self.stage) + step))])
            self._show_source()

    def on_choice_bar_picked(self, event: ChoiceBar.Picked) -> None:
        event.stop()
        if self.lineage is not None:
            self._open(stage_names(self.lineage)[event.index])
            self._show_source()

    def action_unfold(self) -> None:
        """Between the changes alone, identical layers as one, and every node."""
        self.unfolded = not self.unfolded
        self.query_one("#diff", VirtualTable).unfolded = self.unfolded
        self._open(self.stage)

    def _real(self, stage: str) -> str:
        """Return the stage of the table's nodes: the joint program for the partition."""
        assert self.lineage is not None  # since a stage was chosen
        return self.lineage.joints[-1] if stage == PARTITION else stage

    def _alignment(self) -> Alignment | None:
        """Return the open stage beside its parent; None for the first and for the partition."""
        lineage, name = self.lineage, self.stage
        if lineage is None or self.subject is None or name not in lineage.stages:
            return None
        parent = lineage.parent(name)
        if name not in self._alignments:
            self._alignments[name] = aligned_stages(self.subject.target, parent, name) if parent else None
        return self._alignments[name]

    def _open(self, stage: str) -> None:
        """Show a stage with the cursor on the node that is followed."""
        lineage, subject = self.lineage, self.subject
        if lineage is None or subject is None or not stage:
            return
        self.stage = stage
        names = stage_names(lineage)
        self.query_one(ChoiceBar).show(stage_choices(lineage), names.index(stage))
        followed_in, node = self.followed
        here = lineage.counterpart(self._real(followed_in), node, self._real(stage)) if node else None
        self.here = here or ""
        alignment = self._alignment()
        table = self.query_one("#diff", VirtualTable)
        self.records = ()
        if stage == PARTITION:
            table.show(fate_listing(lineage))
        elif alignment is None:
            table.show(node_listing(lineage.stages[stage], subject.target))
        else:
            self.records = diff_records(alignment.rows, self.here, self.unfolded)
            table.show(diff_listing(self.records, (alignment.difference.before, stage), subject.target))
        if not (here and table.select_or_fold(here)):
            table.select_index_or_fold(self._first_change())
        self._opened_at = table.cursor
        table.centre()
        self._caption(alignment, lost=node if node and here is None else "")
        if self.has_class("-text"):
            self._show_text()
        self._describe()

    def _first_change(self) -> int:
        """Return the first row of an opened stage: where nothing changes, the first operator."""
        if not self.records and self.lineage is not None:
            return first_operator(self.lineage.stages[self._real(self.stage)])
        changed = (
            index
            for index, row in enumerate(self.records)
            if isinstance(row, AlignedRow) and row.kind != "unchanged"
        )
        return next(changed, 0)

    def _caption(self, alignment: Alignment | None, lost: str) -> None:
        assert self.lineage is not None  # since a stage is open
        line = stage_caption(self.stage, self.lineage, alignment, lost)
        self.query_one("#stage-caption", LineList).show((line,))

    def _show_source(self) -> None:
        """Highlight the source of the row under the cursor, as if the user had moved there."""
        table = self.query_one("#diff", VirtualTable)
        if table.row_count:
            self.post_message(self.Lit(table.row_link(table.cursor)))

    # Rows.

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if event.sender.id == "diff":
            if self.followed[1] or event.sender.cursor != self._opened_at:
                self.followed = self._chosen() or self.followed
                self.here = self._node()
            self.after_paint(self._describe)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Unfold a run on Enter; on a line of the lineage, go to its node."""
        index = self.query_one("#diff", VirtualTable).record_index
        if event.jump is not None and event.jump.tab == self.TAB:
            event.stop()
            self.reveal(event.jump.key)
        elif event.sender.id == "diff" and index is not None and self._is_run(index):
            event.stop()
            event.prevent_default()  # else the base class goes to the details
            self._unfold_run(index)

    def _is_run(self, index: int) -> bool:
        return index < len(self.records) and isinstance(self.records[index], Run)

    def _unfold_run(self, index: int) -> None:
        run, subject, alignment = self.records[index], self.subject, self._alignment()
        if isinstance(run, Run) and subject is not None and alignment is not None:
            self.records = (*self.records[:index], *run.rows, *self.records[index + 1 :])
            table = self.query_one("#diff", VirtualTable)
            table.show(diff_listing(self.records, (alignment.difference.before, self.stage), subject.target))
            table.select_index_or_fold(index)
            self.followed = self._chosen() or self.followed
            self._show_source()
            self._describe()

    def _chosen(self) -> tuple[str, str] | None:
        """Return stage and name of the node under the cursor; a removed node is in the stage before."""
        table, name = self.query_one("#diff", VirtualTable), self._node()
        if name:
            return self.stage, name
        gone = table.key.removeprefix("gone:")
        parent = self.lineage.parent(self._real(self.stage)) if self.lineage is not None else None
        return (parent, gone) if parent is not None and gone != table.key else None

    def _node(self) -> str:
        """Return the node of the open stage under the cursor; empty on a run and on a removed node."""
        table = self.query_one("#diff", VirtualTable)
        index = table.record_index
        if index is None or self._is_run(index) or table.key.startswith("gone:"):
            return ""
        return self.here if self.here and table.shows(self.here) else table.key

    def _describe(self) -> None:
        table, lineage = self.query_one("#diff", VirtualTable), self.lineage
        index, lines = table.record_index, list[Line]()
        if lineage is not None and index is not None:
            if index < len(self.records):
                lines.append(change_line(self.records[index]))
            chosen = self._chosen()
            if chosen is not None:
                lines += follow_lines(*chosen, lineage)
        self.query_one("#follow", LineList).show(tuple(lines))

    # The program's text.

    def action_program(self) -> None:
        """Between the nodes and the stage as Python text, with the same marks."""
        self.toggle_class("-text")
        if self.has_class("-text"):
            self._show_text()
        self.main().focus()

    def _show_text(self) -> None:
        if self.lineage is None:
            return
        code, alignment = self.query_one("#stage-text", CodeView), self._alignment()
        stage = self._real(self.stage)
        text = from_text(program_text(stage, self.lineage), f"<{stage}>")
        kinds = line_marks_of(alignment.rows, text.lines) if alignment is not None else {}

        def gutter(number: int) -> tuple[tuple[str, str], ...]:
            kind = kinds.get(number, "unchanged")
            return ((f"{MARKS[kind]} ", f"code--{kind}" if kind != "unchanged" else ""),)

        code.show(text, gutter=gutter)
        starts = tuple(f"{self._node() or 'def'}{end}" for end in (" =", ":", ",", " "))
        lines = (number for number, line in enumerate(text.lines, 1) if line.strip().startswith(starts))
        code.place_cursor(next(lines, 1))

    def on_code_view_moved(self, event: CodeView.Moved) -> None:
        """Select the node that the program's line defines."""
        event.stop()
        code, table = self.query_one("#stage-text", CodeView), self.query_one("#diff", VirtualTable)
        name = code.text.lines[event.line - 1].strip().split(" ", 1)[0].rstrip(":,")
        if name and table.select_or_fold(name):
            self.followed, self.here = (self.stage, name), name
            self._show_source()
