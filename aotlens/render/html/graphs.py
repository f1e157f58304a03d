"""The programs of a target for the page: each stage as a drawing and a table, and beside the stage before."""

from collections.abc import Iterator, Sequence

from aotlens.model.report import Stage, Target
from aotlens.render.html.encode import Encoder, Json
from aotlens.view.lineage import PARTITION, Lineage
from aotlens.view.stage_rows import aligned_stages
from aotlens.view.tabs.drawn_graph.boxes import Box, graph_boxes
from aotlens.view.tabs.drawn_graph.graph import (
    StageIndex,
    all_stages,
    fact_lines,
    node_listing,
    partition_index,
    stage_title,
)
from aotlens.view.tabs.stages import (
    DiffRecord,
    Run,
    change_line,
    diff_listing,
    diff_records,
    fate_listing,
    stage_caption,
    stage_names,
)
from aotlens.view.tabs.tables.rows import Listing

__all__ = ["graph_choice", "stage_choice"]

FIRST_SHOWN = ("forward", "inference")
DRAWN_COLUMNS = ("node", "operation", "tensor")
"""The cells of a row that a drawn node shows."""


def graph_choice(target: Target, encoder: Encoder) -> Json:
    """Return the graphs of all stages, the forward's shown first."""
    items = [_graph(stage, target, encoder) for stage in all_stages(target)]
    first = next((index for index, item in enumerate(items) if item["name"] in FIRST_SHOWN), 0)
    return {"kind": "choice", "items": list(items), "first": first}


def _graph(stage: Stage, target: Target, encoder: Encoder) -> dict[str, object]:
    listing = node_listing(stage, target)
    shown = [index for index, column in enumerate(listing.columns) if column.title in DRAWN_COLUMNS]
    table = {**encoder.table(listing, _node_rows(stage, target, encoder)), "shown": shown}
    boxes: list[object] = [_box(box) for box in graph_boxes(stage, target)]
    block = {
        "kind": "graph",
        "boxes": boxes,
        "fates": _fates(stage, target),
        "output": next((index for index, node in enumerate(stage.nodes) if node.op == "output"), -1),
        "shown": shown,
        "table": table,
    }
    return {"name": stage.name, "title": stage_title(stage), "blocks": [block]}


def _node_rows(stage: Stage, target: Target, encoder: Encoder) -> list[list[Json]]:
    index = StageIndex(stage)
    text, lines = encoder.text(stage.text), _statements(stage.text)
    rows: list[list[Json]] = []
    for node in stage.nodes:
        details = encoder.lines(fact_lines(node, index, target))
        line = lines.get(node.name, 0)
        operands: list[object] = [index.positions[name] for name in node.inputs if name in index.positions]
        rows.append([details, [["program", text, line, line]], operands])
    return rows


def _box(box: Box) -> list[object]:
    return [box.label, box.facts, list(box.positions), [_box(inner) for inner in box.inner]]


def _fates(stage: Stage, target: Target) -> Json:
    """Return by position how a drawn node is marked: an input, saved, or recomputed."""
    known = partition_index(target.partition)
    marks: dict[str, object] = {}
    for position, node in enumerate(stage.nodes):
        if node.op == "placeholder":
            marks[str(position)] = "input"
        elif node.name in known.saved and stage.name in ("joint", "forward"):
            marks[str(position)] = "saved"
        elif node.name in known.recomputed and stage.name in ("joint", "backward"):
            marks[str(position)] = "recomputed"
    return marks


def stage_choice(target: Target, encoder: Encoder) -> Json:
    """Return each stage that changes the program: what it changes, and its text."""
    lineage = Lineage(target)
    items: list[object] = [
        _stage(name, lineage, encoder)
        for name in stage_names(lineage)
        if name in (PARTITION, *lineage.stages)
    ]
    return {"kind": "choice", "items": items, "first": 0}


def _stage(name: str, lineage: Lineage, encoder: Encoder) -> dict[str, object]:
    target = lineage.target
    if name == PARTITION:
        caption, table = stage_caption(name, lineage, None), encoder.table(fate_listing(lineage))
        return {"name": name, "title": name, "blocks": [encoder.lines_block([caption]), table], "texts": []}
    parent, stage = lineage.parent(name), lineage.stages[name]
    alignment = aligned_stages(target, parent, name) if parent else None
    caption = stage_caption(name, lineage, alignment)
    text = encoder.text(stage.text)
    if alignment is None:
        table = encoder.table(node_listing(stage, target), list(_texts(stage, text)))
    else:
        records = diff_records(alignment.rows, "", unfolded=False)
        listing = diff_listing(records, (alignment.difference.before, name), target)
        table = encoder.table(listing, _changes(records, listing, stage, encoder))
    return {
        "name": name,
        "title": stage_title(stage),
        "blocks": [encoder.lines_block([caption]), table],
        "texts": [["program", text, 0, 0]],
    }


def _texts(stage: Stage, text: int) -> Iterator[list[Json]]:
    lines = _statements(stage.text)
    for node in stage.nodes:
        line = lines.get(node.name, 0)
        yield [[], [["program", text, line, line]]]


def _changes(
    records: Sequence[DiffRecord], listing: Listing, stage: Stage, encoder: Encoder
) -> list[list[Json]]:
    """Return the details of each row, and the statement of its node in the stage's program."""
    text, lines = encoder.text(stage.text), _statements(stage.text)
    rows: list[list[Json]] = []
    for index, record in enumerate(records):
        name = record.rows[0].node.name if isinstance(record, Run) else listing.rows.key(index)
        line = lines.get(name, 0)
        last = line + len(record.rows) - 1 if isinstance(record, Run) and line else line
        words = [] if isinstance(record, Run) else encoder.lines([change_line(record)])
        rows.append([words, [["program", text, line, last]]])
    return rows


def _statements(text: str) -> dict[str, int]:
    """Return the 1-based line of each node in a program's text."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, mark, _ = line.strip().partition(" = ")
        if mark and name.isidentifier():
            lines.setdefault(name, number)
    return lines
