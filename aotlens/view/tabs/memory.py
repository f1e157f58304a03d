"""Live bytes over forward and backward: the curve, its rows, and the values alive at the peak."""

from collections.abc import Iterator

from aotlens.model.report import LiveValue, Memory, Span, Target
from aotlens.model.spans import line_of, line_text, text_of, texts
from aotlens.view.fold import FUSED, alive_key, alive_label, lifetime
from aotlens.view.names import node_in_phase
from aotlens.view.plots import bar, plot
from aotlens.view.quantities import human_bytes, percent, signed_bytes
from aotlens.view.tabs.drawn_graph.graph import StageIndex
from aotlens.view.tabs.tables.rows import (
    Cells,
    Column,
    Group,
    Jump,
    LazyRows,
    Line,
    Link,
    Listing,
    Part,
    grouped,
    size_part,
)

BAR_WIDTH = 12
PLOT_HEIGHT = 8
LABEL_WIDTH = 10
FEWEST_POINTS = 8
"""A curve with fewer nodes has rows only."""
NOTHING = "the memory of this target is not known"

CURVE_COLUMNS = (
    Column("live", widest=9, narrowest=9, align="right", largest_first=True),
    Column("change", widest=11, narrowest=9, align="right", drop=1, largest_first=True),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=3),
    Column("node", widest=30, narrowest=12, grows=True),
    Column("phase", widest=9, narrowest=8, drop=2),
    Column("line", widest=40, narrowest=4, align="right"),
)
ALIVE_COLUMNS = (
    Column("at the peak", widest=11, narrowest=11, align="right", largest_first=True),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=3),
    Column("value", widest=40, narrowest=28, grows=True),
    Column("node", widest=24, narrowest=10, drop=4),
    Column("alive as", widest=24, narrowest=8, drop=1),
    Column("created in", widest=10, narrowest=10, drop=2),
    Column("line", widest=40, narrowest=4, align="right"),
)


def phase_at(memory: Memory, index: int) -> str:
    """Of a row of the curve."""
    if memory.peak_phase == "inference":
        return "inference"
    return "forward" if index < memory.forward_nodes else "backward"


def peak_row(memory: Memory) -> int | None:
    """Return the first row of the curve that reaches the peak; None if no row does, as in an empty curve."""
    return next((index for index, (_, live) in enumerate(memory.curve) if live == memory.peak_bytes), None)


class CurveNodes:
    """The source locations of the curve's nodes; each stage is indexed when it is first needed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stages: dict[str, StageIndex | None] = {}

    def link(self, phase: str, name: str) -> Link:
        if phase not in self._stages:
            stage = self._target.stage(phase)
            self._stages[phase] = StageIndex(stage) if stage is not None else None
        index = self._stages[phase]
        node = index.node(name) if index is not None else None
        return Link(node.spans[:1], node.spans[1:]) if node is not None else Link()


def curve_listing(target: Target) -> Listing:
    """Return every node in execution order, with the bytes alive while it runs."""
    memory, home, nodes = target.memory, target.file, CurveNodes(target)
    if memory is None:
        return Listing(CURVE_COLUMNS, LazyRows((), str, lambda _: (), str, lambda _: Link()), NOTHING)
    curve, peak = memory.curve, peak_row(memory)

    def link_of(index: int) -> Link:
        return nodes.link(phase_at(memory, index), curve[index][0])

    def cells_of(index: int) -> Cells:
        name, live = curve[index]
        change = live - (curve[index - 1][1] if index else 0)
        spans = link_of(index).primary
        return (
            size_part(live, "warning" if index == peak else ""),
            Part(signed_bytes(change), "dim", change) if change else "",
            Part(bar(live, memory.peak_bytes, BAR_WIDTH), "saved"),
            Part(f"{name} (peak)" if index == peak else name, "name"),
            phase_at(memory, index),
            Part(line_of(spans[0] if spans else None, home), "place"),
        )

    rows = LazyRows(
        range(len(curve)),
        lambda index: f"{phase_at(memory, index)}/{curve[index][0]}",
        cells_of,
        lambda index: f"{curve[index][0]} {phase_at(memory, index)}",
        link_of,
    )
    return Listing(CURVE_COLUMNS, rows, NOTHING)


def by_size(memory: Memory | None) -> tuple[LiveValue, ...]:
    """Return the values alive at the peak, the largest first."""
    return tuple(sorted(memory.live_at_peak, key=lambda live: -live.bytes)) if memory else ()


def live_name(live: LiveValue) -> str:
    return live.name or (text_of(live.span) if live.span else "") or live.node


def spans_of(span: Span | None) -> tuple[Span, ...]:
    return (span,) if span is not None else ()


def alive_listing(target: Target) -> Listing:
    """Return the values that are alive at the peak."""
    records, home = by_size(target.memory), target.file
    largest = max((live.bytes for live in records), default=0)
    text_at = texts()

    def cells_of(live: LiveValue) -> Cells:
        return (
            size_part(live.bytes),
            Part(bar(live.bytes, largest, BAR_WIDTH), "saved"),
            Part(live.name or alive_label(live, text_at), "name"),
            Part(live.node, "dim"),
            live.kind,
            live.made_in,
            Part(line_of(live.span, home), "place"),
        )

    rows = LazyRows(
        records,
        lambda live: f"alive:{live.made_in}/{live.node}",
        cells_of,
        lambda live: (
            f"{live.name or ''} {alive_label(live, text_at)} {live.node} {live.kind} {live.layer or ''}"
        ),
        lambda live: Link(spans_of(live.span), spans_of(live.last_span)),
    )
    groups = grouped(records, lambda live: alive_label(live, text_at), alive_key)
    totals = {group: sum(records[index].bytes for index in group.positions) for group in groups}
    most = max(totals.values(), default=0)

    def group_cells(group: Group) -> Cells:
        drawn = Part(bar(totals[group], most, BAR_WIDTH), "saved")
        first = cells_of(records[group.positions[0]])
        return (size_part(totals[group]), drawn, Part(group.label, "name"), *first[3:])

    ordered = tuple(sorted(groups, key=lambda group: -totals[group]))
    return Listing(ALIVE_COLUMNS, rows, "nothing is alive at the peak", ordered, group_cells)


def memory_total(target: Target) -> Line:
    """Return the headline of the tab."""
    memory = target.memory
    if memory is None or not memory.curve:
        return Line((Part(NOTHING, "dim"),))
    where = line_text(memory.peak_span, target.file)
    parts = [
        Part(human_bytes(memory.peak_bytes), "title"),
        Part(f" at the peak: {node_in_phase(memory.peak_node, memory.peak_phase)}"),
        Part(f"  {where}" if where else "", "place"),
    ]
    if 0 < memory.forward_nodes < len(memory.curve):
        held = f" · {human_bytes(memory.held_bytes)} between forward and backward"
        parts.append(Part(held, "dim"))
    if memory.fused:
        parts.append(Part(f" · {FUSED}", "dim"))
    link = Link((memory.peak_span,) if memory.peak_span else ())
    return Line(tuple(parts), link)


def curve_plot(target: Target, width: int, selected: int | None, height: int = PLOT_HEIGHT) -> Iterator[Line]:
    """Yield the curve in so many cells, with a mark below the selected row."""
    memory = target.memory
    if memory is None or len(memory.curve) < FEWEST_POINTS:
        return
    rows = plot([value for _, value in memory.curve], width - LABEL_WIDTH - 2, height)
    for number, row in enumerate(rows):
        label = human_bytes(memory.peak_bytes) if number == 0 else ""
        yield Line((Part(f"{label:>{LABEL_WIDTH}} {'┤' if label else '│'}", "dim"), Part(row, "saved")))
    cells, points = len(rows[0]), len(memory.curve)
    foot = ["─"] * cells
    edge = round(cells * memory.forward_nodes / points) if 0 < memory.forward_nodes < points else 0
    if edge:
        foot[min(edge, cells - 1)] = "┬"
    if selected is not None:
        foot[min(cells - 1, selected * cells // points)] = "▲"
    yield Line((Part(f"{'0 B':>{LABEL_WIDTH}} ┼{''.join(foot)}", "dim"),))
    names = f"{'forward':<{edge}}backward" if edge else f"{points} nodes"
    yield Line((Part(" " * (LABEL_WIDTH + 2) + names, "dim"),))


def curve_details(target: Target, index: int, link: Link) -> Iterator[Line]:
    """Yield the details of one row of the curve; `link` is its source."""
    memory = target.memory
    if memory is None:
        return
    name, live = memory.curve[index]
    phase = phase_at(memory, index)
    text = (
        f"  {human_bytes(live)} alive while it runs, {percent(live / max(1, memory.peak_bytes))} of the peak"
    )
    yield Line((Part(name, "title"), Part(text, "dim")))
    spans = link.primary
    if not spans:
        yield Line((Part("a gradient that autograd copies for its leaf", "dim"),))
        return
    where = line_text(spans[0], target.file)
    yield Line((Part(text_of(spans[0])), Part(f"  {where}", "place")), Link(spans))
    yield Line((Part("node  ", "dim"), Part(name, "name")), jump=Jump("graphs", f"{phase}/{name}"))


def alive_details(live: LiveValue, target: Target) -> Iterator[Line]:
    """Yield where a value comes from, why it is alive and until when."""
    home = target.file
    layer = f"  in {live.layer}" if live.layer else ""
    yield Line((Part(live_name(live), "title"), Part(f"  {human_bytes(live.bytes)}{layer}", "dim")))
    yield Line((Part("alive  ", "dim"), Part(f"{live.kind}, {lifetime(live, home)}")), wrap=True)
    if live.span is not None:
        parts = (Part("created by  ", "dim"), Part(text_of(live.span)))
        yield Line((*parts, Part(f"  {line_text(live.span, home)}", "place")), Link((live.span,)))
    if live.last_span is not None:
        parts = (Part("last read by  ", "dim"), Part(text_of(live.last_span)))
        yield Line((*parts, Part(f"  {line_text(live.last_span, home)}", "place")), Link((live.last_span,)))
    node = (Part("node  ", "dim"), Part(live.node, "name"))
    yield Line(node, jump=Jump("graphs", f"{live.made_in}/{live.node}"))
    if live.kind == "saved":
        yield Line((Part("why it is saved", "dim"),), jump=Jump("saved", f"saved:{live.node}"))
