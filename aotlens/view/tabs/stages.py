"""A stage beside its parent, and one computation through all stages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from aotlens.model.report import Stage, StageNode, Target
from aotlens.model.spans import line_of, line_text
from aotlens.view.lineage import PARTITION, Fate, Lineage, Step
from aotlens.view.names import bare_op, first_names
from aotlens.view.partition.reasons import reason_text
from aotlens.view.quantities import call_count, counted, human_bytes
from aotlens.view.stage_rows import AlignedRow, Alignment, summary
from aotlens.view.tabs.drawn_graph.graph import node_link, operation
from aotlens.view.tabs.drawn_graph.layers import kind_of, over_layers
from aotlens.view.tabs.tables.rows import (
    Cell,
    Cells,
    Column,
    Group,
    Jump,
    LazyRows,
    Line,
    Link,
    Listing,
    Part,
    size_part,
)

MARKS = {"unchanged": " ", "replaced": "±", "added": "+", "removed": "-", "rewired": "~"}
ROLES_OF = {
    "unchanged": "dim",
    "replaced": "warning",
    "added": "added",
    "removed": "removed",
    "rewired": "accent",
}
WORDS = {
    "unchanged": "is unchanged",
    "replaced": "is replaced",
    "added": "is added",
    "removed": "is removed",
    "rewired": "reads another value",
}
SIDES = {
    "input": "an input",
    "forward": "forward",
    "backward": "backward",
    "both": "forward, recomputed in backward",
    "neither": "nowhere: its value is not used",
}
FEWEST = 3
"""A shorter run of unchanged nodes is not folded."""
MOST_NAMES = 4
MARK_WIDTH, STAGE_WIDTH, PLACE_WIDTH = 3, 11, 9
"""Widths in cells; `line 41` comes before a computation's name in a stage."""

FATE_COLUMNS = (
    Column("", widest=1, narrowest=1),
    Column("node", widest=30, narrowest=14, grows=True),
    Column("operation", widest=30, narrowest=10, drop=3),
    Column("runs in", widest=26, narrowest=8),
    Column("saved", widest=9, narrowest=9, align="right", largest_first=True),
    Column("line", widest=40, narrowest=4, align="right"),
    Column("why", widest=40, narrowest=12, drop=2),
)


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring nodes that stay as they are, shown as one row."""

    rows: tuple[AlignedRow, ...]


DiffRecord = AlignedRow | Run


def stage_names(lineage: Lineage) -> tuple[str, ...]:
    """Return the transforms in order: stages that change something, and the partition between joint and
    forward."""
    names = list(lineage.stages)
    if lineage.has_fates and "forward" in names:
        names.insert(names.index("forward"), PARTITION)
    return tuple(names)


def stage_choices(lineage: Lineage) -> tuple[tuple[str, str, str], ...]:
    """Return the bar of the stages, with the number of operators where there is room."""
    stages = lineage.stages
    return tuple(
        ("", f"{name} {call_count(stages[name])}" if name in stages else name, name.removeprefix("joint_"))
        for name in stage_names(lineage)
    )


def stage_caption(name: str, lineage: Lineage, alignment: Alignment | None, lost: str = "") -> Line:
    """Return the stage's effect in one line; `lost` is a followed node without a counterpart here."""
    if lost:
        return Line((Part(lost, "title"), Part(f" is not in {name}; the next stages may have it", "warning")))
    if name == PARTITION:
        return Line((Part("joint → forward + backward", "title"), Part(f"  {split_text(lineage)}", "dim")))
    if alignment is None:
        number = counted(call_count(lineage.stages.get(name)), "operator")
        return Line((Part(name, "title"), Part(f"  {number}, as your code ran them", "dim")))
    idle = lineage.unchanged(name)
    more = f" · {' and '.join(idle)} changed nothing" if idle else ""
    heading = Part(f"{lineage.parent(name)} → {name}", "title")
    return Line((heading, Part(f"  {summary(alignment.difference)}{more}", "dim")))


def split_text(lineage: Lineage) -> str:
    sides = [fate.side for fate in lineage.fates.values()]
    parts = [
        f"{sides.count('forward') + sides.count('both')} in the forward",
        f"{sides.count('backward') + sides.count('both')} in the backward",
    ]
    if again := sides.count("both"):
        parts.append(f"{again} of them in both")
    return ", ".join(parts)


# The difference.


def diff_records(rows: Sequence[AlignedRow], shown: str, unfolded: bool) -> tuple[DiffRecord, ...]:
    """Rows with runs of unchanged ones folded, but for the node that is shown."""
    if unfolded or all(row.kind == "unchanged" for row in rows):
        return tuple(rows)
    records: list[DiffRecord] = []
    run: list[AlignedRow] = []
    for row in rows:
        if row.kind == "unchanged" and row.node.name != shown:
            run.append(row)
            continue
        records += folded(run)
        run = []
        records.append(row)
    return (*records, *folded(run))


def folded(run: list[AlignedRow]) -> list[DiffRecord]:
    return list(run) if len(run) < FEWEST else [Run(tuple(run))]


def record_key(record: DiffRecord) -> str:
    """Return the node's name; that of a removed node has a mark."""
    if isinstance(record, Run):
        return f"run:{record.rows[0].node.name}"
    return record.after.name if record.after is not None else f"gone:{record.node.name}"


def diff_listing(records: Sequence[DiffRecord], names: tuple[str, str], target: Target) -> Listing:
    """Return the earlier stage on the left, this one on the right."""
    home = target.file
    columns = (
        Column("", widest=1, narrowest=1),
        Column(names[0], narrowest=14, grows=True),
        Column(names[1], narrowest=14, grows=True),
        Column("line", widest=40, narrowest=4, align="right"),
    )

    def cells_of(record: DiffRecord) -> Cells:
        if isinstance(record, Run):
            stay = f"⋯ {len(record.rows)} unchanged nodes"
            return (Part("⋯", "dim"), Part(stay, "dim"), Part("⋯", "dim"), "")
        role = ROLES_OF[record.kind]
        before, after = record.before, record.after
        quiet, same = record.kind in ("unchanged", "rewired"), frozenset[str]()
        if record.kind == "rewired" and before and after:
            same = frozenset(before.inputs) & frozenset(after.inputs)
        old = Part(short_reason(record.reason), "dim")
        if before is not None:
            old = Part(call_text(before, same), "dim" if quiet else "removed")
        new = Part(call_text(after, same) if after else "", role if quiet else "added")
        return (
            Part(MARKS[record.kind], role),
            old,
            new,
            Part(line_of(next(iter(record.node.spans), None), home), "place"),
        )

    def text(record: DiffRecord) -> str:
        rows = record.rows if isinstance(record, Run) else (record,)
        return " ".join(
            f"{node.name} {node.target}" for row in rows for node in (row.before, row.after) if node
        )

    def link(record: DiffRecord) -> Link:
        return Link() if isinstance(record, Run) else node_link(record.node)

    rows = LazyRows(records, record_key, cells_of, text, link)
    nodes = tuple(record.rows[0].node if isinstance(record, Run) else record.node for record in records)
    table = Listing(columns, rows, "this stage has no nodes")
    return over_layers(table, nodes, 1, lambda index: diff_same(records[index]))


def diff_same(record: DiffRecord) -> tuple[object, ...]:
    """Return the fields that the rows of identical layers share beside the node itself."""
    if isinstance(record, Run):
        return (len(record.rows),)
    before, after = record.before, record.after
    return (record.kind, kind_of(before) if before is not None else "", after is None)


def short_reason(reason: str) -> str:
    """Return a reason for a narrow cell, its subject first."""
    return reason.removeprefix("part of the ").replace("`aten.", "").replace(".default`", "").replace("`", "")


def call_text(node: StageNode, unsaid: frozenset[str] = frozenset()) -> str:
    """Return `mul = mul.Tensor(x, add)`, as in the program; unimportant inputs are dots."""
    if node.op == "placeholder":
        return f"{node.name}: input"
    read = ", ".join(name for name, _ in groupby("…" if name in unsaid else name for name in node.inputs))
    if node.op == "output":
        return f"return {read}"
    called = bare_op(node.target)
    item = called.removeprefix("getitem")
    return f"{node.name} = {called}({read})" if item == called else f"{node.name} = {read}{item}"


# The partition.


def fate_listing(lineage: Lineage) -> Listing:
    """Return the joint program with the fate of each node."""
    home, fates = lineage.target.file, lineage.fates
    nodes = tuple(node for node in lineage.stages[lineage.joints[-1]].nodes if node.name in fates)

    def cells_of(node: StageNode) -> Cells:
        fate = fates[node.name]
        mark, size = fate_mark(fate)
        return (
            mark,
            Part(node.name, "name"),
            operation(node),
            Part(SIDES[fate.side], "dim" if fate.side == "input" else ""),
            size,
            Part(line_of(next(iter(node.spans), None), home), "place"),
            Part(fate_reason(fate), "dim"),
        )

    def text(node: StageNode) -> str:
        fate = fates[node.name]
        return f"{node.name} {node.target} {SIDES[fate.side]} {'saved' if fate.saved else ''}"

    def group_cells(group: Group) -> Cells:
        cells = cells_of(nodes[group.positions[0]])
        together = sum(value.bytes for index in group.positions if (value := fates[nodes[index].name].saved))
        return (*cells[:4], size_part(together, "saved") if together else cells[4], *cells[5:])

    rows = LazyRows(nodes, lambda node: node.name, cells_of, text, node_link)
    table = Listing(FATE_COLUMNS, rows, "nothing to partition", group_cells=group_cells)
    return over_layers(table, nodes, 1, lambda index: fate_same(fates[nodes[index].name]))


def fate_same(fate: Fate) -> tuple[object, ...]:
    """Return the fields that the rows of identical layers share beside the node itself."""
    value = fate.saved or fate.recomputed
    return (fate.side, fate.saved is None, value and (value.bytes, value.code, value.reason))


def fate_mark(fate: Fate) -> tuple[Part, Cell]:
    if fate.saved is not None:
        return Part("s", "saved"), size_part(fate.saved.bytes, "saved")
    return Part("2" if fate.side == "both" else " ", "accent"), ""


def fate_reason(fate: Fate) -> str:
    value = fate.saved or fate.recomputed
    return reason_text(value) if value is not None else ""


# One computation through all stages.


def follow_lines(stage: str, name: str, lineage: Lineage) -> Iterator[Line]:
    """Yield one line for each stage: the name of `stage`'s node there; Enter leads to it."""
    joint = lineage.joints[-1:]
    start = joint[0] if stage == PARTITION else stage
    seen = False
    for step in lineage.steps(start, name):
        yield from lineage_step_lines(step, stage, seen, lineage)
        seen = seen or bool(step.nodes)
        if (step.stage,) == joint and step.nodes and step.nodes[0] in lineage.fates:
            yield fate_line(step.nodes[0], stage, lineage)


def lineage_step_lines(step: Step, here: str, seen: bool, lineage: Lineage) -> Iterator[Line]:
    nodes, home = lineage.nodes(step.stage), lineage.target.file
    mark = Part(" ● " if step.stage == here else " ○ " if step.nodes else " · ", "accent")
    wide = stage_width(lineage)
    label = Part(f"{step.stage:<{wide}}", "title" if step.stage == here else "dim")
    below = Part(" " * (MARK_WIDTH + wide + PLACE_WIDTH))
    for name in step.nodes[:2]:
        node = nodes[name]
        where = line_text(next(iter(node.spans), None), home)
        start = (mark, label) if name == step.nodes[0] else (Part(" " * (MARK_WIDTH + wide)),)
        parts = (
            Part(f"{where + ' ':<{PLACE_WIDTH}}", "place"),
            Part(call_text(node), "name"),
            Part(f"  {node.tensor.short()}" if node.tensor else "", "tensor"),
            Part(source_in_backward(step.stage, node), "dim"),
        )
        yield Line((*start, *parts), node_link(node), Jump("stages", f"{step.stage}/{name}"))
    if not step.nodes:
        yield Line((mark, label, Part(f"{'':<{PLACE_WIDTH}}{absence(step, seen)}", "dim")))
    for title, names in (("gradient", step.gradient), ("gradient of", step.gradient_of)):
        if names:
            names_part = Part(f"{title}  ", "dim"), Part(first_names(names, MOST_NAMES), "name")
            jump = Jump("stages", f"{step.stage}/{names[0]}")
            yield Line((below, *names_part), node_link(nodes[names[0]]), jump)


def stage_width(lineage: Lineage) -> int:
    """Of the column of stage names."""
    return max([STAGE_WIDTH, *(len(name) + 1 for name in lineage.stages)])


def source_in_backward(stage: str, node: StageNode) -> str:
    """Return how a value of the forward is available in the backward."""
    if stage != "backward" or node.reason.startswith("part of"):
        return ""
    if node.op != "placeholder":
        return "  recomputed"
    return "  passed by autograd" if node.reason.startswith("Tangent") else "  passed by the forward"


def absence(step: Step, seen: bool) -> str:
    if step.stage in ("forward", "backward"):
        return "not in this graph"
    return "not in this graph any more" if seen else "not in this graph yet"


def fate_line(name: str, here: str, lineage: Lineage) -> Line:
    fate = lineage.fates[name]
    mark = Part(" ● " if here == PARTITION else " ○ ", "accent")
    label = Part(f"{PARTITION:<{stage_width(lineage)}}", "title" if here == PARTITION else "dim")
    runs_in = f"runs in: {SIDES[fate.side]}" if fate.side != "input" else "an input of the graph"
    parts = [Part(f"{'':<{PLACE_WIDTH}}{runs_in}")]
    jump = Jump("stages", f"{PARTITION}/{name}")
    if fate.saved is not None:
        parts.append(Part(f" · saved, {human_bytes(fate.saved.bytes)}", "saved"))
        jump = Jump("saved", f"saved:{name}")
    parts.append(Part(f": {fate_reason(fate)}" if fate_reason(fate) else "", "dim"))
    return Line((mark, label, *parts), jump=jump, wrap=True)


def change_line(record: DiffRecord) -> Line:
    """Return the row's change in words."""
    if isinstance(record, Run):
        return Line((Part(f"{len(record.rows)} nodes are unchanged; Enter shows them, u shows all", "dim"),))
    why = f": {record.reason}" if record.reason else ""
    parts = (Part(f"{MARKS[record.kind]} ".lstrip(), ROLES_OF[record.kind]), Part(record.node.name, "title"))
    return Line((*parts, Part(f" {WORDS[record.kind]}{why}", "dim")), wrap=True)


def line_marks_of(rows: Sequence[AlignedRow], lines: Sequence[str]) -> dict[int, str]:
    """Return the mark of each 1-based line of the stage's text that defines a changed node."""
    kinds = {row.after.name: row.kind for row in rows if row.after is not None and row.kind != "unchanged"}
    marks: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        name = line.strip().split(" ", 1)[0].rstrip(":,")
        if (kind := kinds.get("output" if name == "return" else name)) is not None:
            marks[number] = kind
    return marks


def program_text(stage: str, lineage: Lineage) -> str:
    record: Stage | None = lineage.stages.get(stage)
    return record.text if record is not None else ""
