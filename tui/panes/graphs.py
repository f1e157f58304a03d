"""Every stage as a table of nodes, and the neighbourhood of the selected one."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget

from aotlens.report.records import Stage
from tui.panes.base import Pane, Subject
from tui.view.graph import StageIndex, all_stages, counterpart, neighbourhood, node_listing, stage_title
from tui.view.rows import Line
from tui.view.source import from_text
from tui.widgets.bars import ChoiceBar
from tui.widgets.code import CodeView
from tui.widgets.lines import LineList
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable

FIRST_SHOWN = ("forward", "inference")


class GraphsPane(Pane):
    TAB: ClassVar[str] = "graphs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket,comma,left", "stage(-1)", "Stage before", key_display="["),
        Binding("right_square_bracket,full_stop,right", "stage(1)", "Next stage", key_display="]"),
        Binding("p", "program", "Program text"),
        Binding("backspace", "back", "Node before", show=False),
    ]
    DEFAULT_CSS = """
    GraphsPane ChoiceBar { padding: 0 1; border-bottom: none; }
    GraphsPane #nodes { height: 1fr; }
    GraphsPane .detail { height: 13; }
    GraphsPane #program { display: none; }
    GraphsPane.-program #program { display: block; }
    GraphsPane.-program #nodes, GraphsPane.-program #neighbours { display: none; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.indices: dict[str, StageIndex] = {}
        self.stage_name = ""
        self.history: list[str] = []
        """Nodes that were left by walking, newest last."""

    def compose(self) -> ComposeResult:
        yield ChoiceBar("›", id="stages")
        yield VirtualTable(id="nodes")
        yield CodeView(id="program")
        yield LineList(id="neighbours", classes="detail")

    def fill(self, subject: Subject) -> None:
        stages = all_stages(subject.target)
        self.indices = {stage.name: StageIndex(stage) for stage in stages}
        self.history = []
        names = [stage.name for stage in stages]
        kept = self.stage_name if self.stage_name in names else ""
        first = next((name for name in FIRST_SHOWN if name in names), names[0] if names else "")
        self._open(kept or first)

    def main(self) -> Widget:
        return self.query_one("#program" if self.has_class("-program") else "#nodes")

    def reveal(self, key: str) -> None:
        """`node`, or `stage/node`; a node that another stage holds opens that stage."""
        stage, _, name = key.rpartition("/")
        if stage and stage in self.indices:
            self._open(stage)
        self._walk(name, remember=False)
        self.query_one("#nodes").focus()

    def mark_line(self, file: str, line: int) -> None:
        self.query_one("#nodes", VirtualTable).mark_line(file, line)
        self._describe()

    # Stages.

    def action_stage(self, step: int) -> None:
        names = list(self.indices)
        if names:
            place = max(0, min(len(names) - 1, names.index(self.stage_name) + step))
            self._change(names[place])

    def on_choice_bar_picked(self, event: ChoiceBar.Picked) -> None:
        event.stop()
        self._change(list(self.indices)[event.index])

    def _change(self, name: str) -> None:
        """Open another stage on the same computation."""
        old, node = self.indices.get(self.stage_name), self.query_one("#nodes", VirtualTable).key
        same = counterpart(node, old, self.indices[name]) if old and node else None
        self._open(name)
        if same:
            self._walk(same, remember=False)

    def _open(self, name: str) -> None:
        subject = self.subject
        if subject is None:
            return
        self.stage_name = name
        stages = all_stages(subject.target)
        names = [stage.name for stage in stages]
        choices = tuple(("", stage_title(stage), stage.name[:8]) for stage in stages)
        self.query_one(ChoiceBar).show(choices, names.index(name) if name in names else 0)
        stage = self.indices[name].stage if name in self.indices else Stage("", None, (), "")
        self.query_one("#nodes", VirtualTable).show(node_listing(stage, subject.target))
        if self.has_class("-program"):
            self._show_program(stage)
        self._describe()

    # The program's text.

    def action_program(self) -> None:
        """Between the table of nodes and the stage as Python text."""
        self.toggle_class("-program")
        index = self.indices.get(self.stage_name)
        if self.has_class("-program") and index is not None:
            self._show_program(index.stage)
        self.main().focus()

    def _show_program(self, stage: Stage) -> None:
        code = self.query_one("#program", CodeView)
        code.show(from_text(stage.text, f"<{stage.name}>"))
        name = self.query_one("#nodes", VirtualTable).key
        starts = (f"{name} =", f"{name}:", f"{name} ")
        lines = (number for number, line in enumerate(code.text.lines, 1) if line.strip().startswith(starts))
        code.place_cursor(next(lines, 1))

    def on_code_view_moved(self, event: CodeView.Moved) -> None:
        """A line of the program stands for the node that it defines."""
        event.stop()
        code, index = self.query_one("#program", CodeView), self.indices.get(self.stage_name)
        name = code.text.lines[event.line - 1].strip().split(" ", 1)[0].rstrip(":")
        position = index.positions.get(name) if index else None
        if position is not None:
            table = self.query_one("#nodes", VirtualTable)
            table.select_index(position)
            self.post_message(self.Lit(table.listing.rows.link(position)))

    # Nodes.

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if event.sender.id == "nodes":
            self._describe()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Enter on a neighbour goes to it."""
        if event.jump is not None and event.jump.tab == self.TAB:
            event.stop()
            self._walk(event.jump.key, remember=True)

    def action_back(self) -> None:
        """To the node that was left last."""
        if self.history:
            self._walk(self.history.pop(), remember=False)

    def _walk(self, name: str, *, remember: bool) -> None:
        table, index = self.query_one("#nodes", VirtualTable), self.indices.get(self.stage_name)
        position = index.positions.get(name) if index else None
        if position is None:
            return
        if remember:
            self.history.append(table.key)
        table.select_index(position, tell=True)
        self._describe()

    def _describe(self) -> None:
        table, index = self.query_one("#nodes", VirtualTable), self.indices.get(self.stage_name)
        lines: tuple[Line, ...] = ()
        if self.subject is not None and index is not None and table.key:
            lines = tuple(neighbourhood(table.key, index, self.subject.target))
        self.query_one("#neighbours", LineList).show(lines)
