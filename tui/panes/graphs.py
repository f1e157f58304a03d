"""The graphs that run: their nodes, a drawing of the selected node's neighbours, forward beside backward."""

from functools import partial
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widget import Widget

from aotlens.model.report import Stage
from aotlens.view.lineage import Lineage
from aotlens.view.tabs.drawn_graph.graph import (
    StageIndex,
    fact_lines,
    first_operator,
    node_listing,
    stage_title,
)
from aotlens.view.tabs.drawn_graph.neighbours import Neighbourhood
from aotlens.view.tabs.tables.rows import Line
from tui.keys import LEFT, RIGHT, bind
from tui.panes.base import Pane, Subject
from tui.widgets.bars import ChoiceBar
from tui.widgets.lines import LineList
from tui.widgets.node_map import NodeMap
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable

SHOWN = ("forward", "backward", "inference", "joint", "joint_passes")
"""The graphs in the order of the bar."""
OTHER = {"forward": "backward", "backward": "forward"}
BESIDE_FROM = 100
"""From this width of the pane on, both graphs are side by side by default."""


class GraphsPane(Pane):
    TAB: ClassVar[str] = "graphs"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("graphs.previous", LEFT, "stage(-1)", ("Before", "Go to the previous graph."), shown="["),
        bind("graphs.next", RIGHT, "stage(1)", ("Next", "Go to the next graph."), shown="]"),
        bind("graphs.both", "b", "beside", ("Both", "Show both graphs side by side, or one.")),
        bind("graphs.map", "m", "map", ("Map", "Fill the tab with the drawing, or show the table.")),
        bind("graphs.unfold", "u", "unfold", ("Layers", "Show or fold identical layers.")),
        bind("graphs.back", "backspace", "back", ("", "Go back to the previous node.")),
    ]
    DEFAULT_CSS = """
    GraphsPane ChoiceBar { padding: 0 1; }
    GraphsPane #tables { height: 1fr; }
    GraphsPane #nodes { width: 1fr; }
    GraphsPane #partner { width: 1fr; display: none; border-left: solid $panel; }
    GraphsPane.-beside #partner { display: block; }
    GraphsPane #map { height: 13; border-top: solid $panel; }
    GraphsPane .detail { height: 6; }
    GraphsPane.-map #tables { height: 6; }
    GraphsPane.-map #map { height: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.indices: dict[str, StageIndex] = {}
        self.stage_name = ""
        self.lineage: Lineage | None = None
        self.visited: list[tuple[str, str]] = []
        """Graph and node of earlier positions, newest last."""
        self._wants_both: bool | None = None
        """The user's choice; None leaves it to the available room."""
        self._partner_stage = ""
        """The graph of the second table, which is filled when it is first shown."""

    def compose(self) -> ComposeResult:
        yield ChoiceBar(id="stages")
        with Horizontal(id="tables"):
            yield VirtualTable(id="nodes")
            yield VirtualTable(id="partner")
        yield NodeMap(id="map")
        yield LineList(id="neighbours", classes="detail")

    @property
    def nodes(self) -> VirtualTable:
        return self.query_one("#nodes", VirtualTable)

    @property
    def partner(self) -> VirtualTable:
        return self.query_one("#partner", VirtualTable)

    def fill(self, subject: Subject) -> None:
        target = subject.target
        self.lineage = Lineage(target)
        names = [name for name in SHOWN if target.stage(name) is not None]
        self.indices = {name: StageIndex(stage) for name in names if (stage := target.stage(name))}
        self.visited = []
        self._open(self.stage_name if self.stage_name in names else next(iter(names), ""))

    def main(self) -> Widget:
        return self.nodes

    def reveal(self, key: str) -> None:
        """Show `node`, or `stage/node`; a node of another graph opens that graph."""
        self._walk(key, remember=False)
        self.nodes.focus()

    def mark_line(self, file: str, line: int) -> None:
        self.nodes.mark_line(file, line)
        if self.has_class("-beside"):
            self.partner.mark_line(file, line)
        self._describe(self.nodes, mark=False)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()
        self._describe(self.nodes)

    # Graphs.

    def action_stage(self, step: int) -> None:
        names = list(self.indices)
        if names:
            self._change(names[max(0, min(len(names) - 1, names.index(self.stage_name) + step))])

    def on_choice_bar_picked(self, event: ChoiceBar.Picked) -> None:
        event.stop()
        self._change(list(self.indices)[event.index])

    def _change(self, name: str) -> None:
        """Open another graph on the same computation."""
        node, old = self.nodes.key, self.stage_name
        same = self.lineage.counterpart(old, node, name) if self.lineage is not None and node else None
        self._open(name)
        if same:
            self._select_node(same)

    def _select_node(self, name: str) -> None:
        """Put the cursor on a node, or on the layers that it is folded into."""
        index = self.indices.get(self.stage_name)
        position = index.positions.get(name) if index else None
        if position is not None and self.nodes.select_index_or_fold(position):
            self.nodes.centre()
            self.post_message(self.Lit(self.nodes.row_link(self.nodes.cursor)))
            self._describe(self.nodes)

    def _open(self, name: str) -> None:
        subject = self.subject
        if subject is None:
            return
        self.stage_name = name
        stages = [index.stage for index in self.indices.values()]
        choices = tuple(("", stage_title(stage), stage.name) for stage in stages)
        names = list(self.indices)
        self.query_one(ChoiceBar).show(choices, names.index(name) if name in names else 0)
        stage = self.indices[name].stage if name in self.indices else Stage("", None, (), "")
        self.nodes.show(node_listing(stage, subject.target))
        if not self.nodes.cursor:
            self.nodes.select_index_or_fold(first_operator(stage))
            self.nodes.centre()
        self._partner_stage = ""
        self._arrange()
        self._describe(self.nodes)

    @property
    def _other(self) -> StageIndex | None:
        """Return the graph on the other side of the partition."""
        return self.indices.get(OTHER.get(self.stage_name, ""))

    # Side by side.

    def action_beside(self) -> None:
        """Between one graph and both."""
        self._wants_both = not self.has_class("-beside")
        self._arrange()
        self._describe(self.nodes)

    def _arrange(self) -> None:
        roomy = self.size.width >= BESIDE_FROM
        wanted = roomy if self._wants_both is None else self._wants_both
        other, subject = self._other, self.subject
        self.set_class(wanted and other is not None, "-beside")
        if wanted and other is not None and subject is not None and self._partner_stage != other.stage.name:
            self._partner_stage = other.stage.name
            self.partner.show(node_listing(other.stage, subject.target, title=other.stage.name))

    def _mark_partner(self, name: str, table: VirtualTable) -> None:
        """Mark a node's counterpart in the other table."""
        other, lineage = self._other, self.lineage
        if other is None or lineage is None or not self.has_class("-beside"):
            return
        own_stage, other_stage = self.stage_name, other.stage.name
        marked, index = self.partner, other
        if table is self.partner:
            own_stage, other_stage, marked, index = (
                other_stage,
                own_stage,
                self.nodes,
                self.indices[own_stage],
            )
        step = lineage.step(own_stage, name, other_stage)
        partner_names = (*step.nodes, *step.gradient, *step.gradient_of)
        positions = (index.positions.get(partner_name) for partner_name in partner_names)
        marked.mark_records(tuple(position for position in positions if position is not None))

    # Nodes.

    def action_map(self) -> None:
        """Fill the pane with the drawing; pressed again, show the table."""
        self.toggle_class("-map")
        (self.query_one("#map") if self.has_class("-map") else self.nodes).focus()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        if isinstance(event.sender, VirtualTable):
            self.after_paint(partial(self._describe, event.sender))

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Go to the drawing on Enter; in the other graph's table, open that graph at the node."""
        event.prevent_default()  # the base class goes to the facts
        if event.sender is self.partner and self._other is not None:
            event.stop()
            self._walk(f"{self._other.stage.name}/{self.partner.key}", remember=True)
            self.nodes.focus()
        elif event.sender is self.nodes:
            event.stop()
            self.query_one("#map").focus()

    def on_node_map_moved(self, event: NodeMap.Moved) -> None:
        event.stop()
        self.post_message(self.Lit(event.item.link))

    def on_node_map_walked(self, event: NodeMap.Walked) -> None:
        event.stop()
        if event.item.jump is not None:
            self._walk(event.item.jump.key, remember=True)

    def action_back(self) -> None:
        """Go back to the previous node."""
        if self.visited:
            self._walk("/".join(self.visited.pop()), remember=False)

    def _walk(self, key: str, *, remember: bool) -> None:
        stage, _, name = key.rpartition("/")
        left = self.stage_name, self.nodes.key
        if stage in self.indices and stage != self.stage_name:
            self._open(stage)
        index = self.indices.get(self.stage_name)
        position = index.positions.get(name) if index else None
        if position is None:
            return
        if remember:
            self.visited.append(left)
        self.nodes.select_index(position, notify=True)
        self._describe(self.nodes)

    def _describe(self, table: VirtualTable, *, mark: bool = True) -> None:
        """Show the drawing and the facts of the node under the cursor of a table."""
        index, other = self.indices.get(self.stage_name), self._other
        if table is self.partner:
            index, other = other, index
        lines: tuple[Line, ...] = ()
        draw = None
        if self.subject is not None and index is not None and table.key:
            target = self.subject.target
            node = index.node(table.key)
            lines = tuple(fact_lines(node, index, target)) if node is not None else ()
            neighbourhood = Neighbourhood(target, index, other)
            draw = partial(neighbourhood.drawing, table.key, unfolded=table.unfolded)
            if mark:
                self._mark_partner(table.key, table)
        self.query_one(NodeMap).show(draw)
        self.query_one("#neighbours", LineList).show(lines)

    def action_unfold(self) -> None:
        """Fold or unfold identical layers, in the tables and in the drawing."""
        super().action_unfold()
        self._describe(self.nodes)
