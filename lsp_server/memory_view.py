"""The memory of traced targets as a tree, for a side bar of the client.

Invariant: reads stored traces and runs nothing; names, groups and totals are those of the other front ends.
"""

from collections.abc import Iterator

from aotlens.model.report import Memory, Partition, Span, Target
from aotlens.model.spans import line_text, texts
from aotlens.view.fold import alive_folds, fold, lifetime, total_bytes
from aotlens.view.partition.reasons import reason_text
from aotlens.view.partition.saved import layer_value_name, owning, saved_total
from aotlens.view.quantities import human_bytes
from aotlens.view.tabs.saved import same_layer
from lsp_server.app import Server
from lsp_server.runs.tracer import Result
from lsp_server.translate.diagnostics import uri_of
from lsp_server.translate.ranges import span_range
from lsp_server.views import TargetKey, real_path, target_key

MEMORY = "aotlens.memory"
MOST_ROWS = 50
"""Values of a group; the terminal app has all."""


async def memory_tree(server: Server) -> list[Result]:
    """Return what each traced target saves for its backward and what is alive at its peak, largest first."""
    newest: dict[tuple[str, TargetKey], Target] = {}
    for held in sorted(server.views.traces.values(), key=lambda trace: trace.number, reverse=True):
        for target in held.report.targets:
            newest.setdefault((held.key[0], target_key(target)), target)
    return [
        {"label": target.qualname, "description": _summary(target), "children": list(_groups(server, target))}
        for target in newest.values()
    ]


def _summary(target: Target) -> str:
    peak = f"{human_bytes(target.memory.peak_bytes)} at the peak" if target.memory is not None else ""
    return " · ".join(filter(None, (target.mode, peak)))


def _groups(server: Server, target: Target) -> Iterator[Result]:
    if target.partition is not None:
        rows = list(_saved_rows(server, target.partition, target))
        yield _node("Saved for the backward", saved_total(target.partition), rows)
    if target.memory is not None:
        rows = list(_alive_rows(server, target.memory, target))
        yield _node("Alive at the peak", human_bytes(target.memory.peak_bytes), rows)


def _saved_rows(server: Server, partition: Partition, target: Target) -> Iterator[Result]:
    text_at = texts()
    folds = fold(owning(partition), lambda saved: layer_value_name(saved, text_at), same_layer)
    for group in sorted(folds, key=lambda group: -total_bytes(group))[:MOST_ROWS]:
        saved = group.first
        size = human_bytes(total_bytes(group))
        where = line_text(saved.span, target.file)
        yield _leaf(server, group.label, (size, group.times, where), reason_text(saved), saved.span)


def _alive_rows(server: Server, memory: Memory, target: Target) -> Iterator[Result]:
    for group in alive_folds(memory)[:MOST_ROWS]:
        live, where = group.first, line_text(group.first.span, target.file)
        facts = (human_bytes(total_bytes(group)), group.times, live.kind, where)
        yield _leaf(server, group.label, facts, f"{live.kind} {lifetime(live, target.file)}", live.span)


def _leaf(server: Server, label: str, facts: tuple[str, ...], tooltip: str, span: Span | None) -> Result:
    row = _node(label, " · ".join(filter(None, facts)), [])
    return {**row, "tooltip": tooltip, **_location(server, span)}


def _node(label: str, description: str, children: list[Result]) -> Result:
    return {"label": label, "description": description, "children": children}


def _location(server: Server, span: Span | None) -> Result:
    """Return the current place of an expression; empty where its text was edited."""
    if span is None:
        return {}
    file = real_path(span.file)
    for shown in server.views.shown_in(file):
        text_range = span_range(shown.view, span)
        if text_range is not None:
            start = text_range.start
            return {"uri": uri_of(server.views, file), "line": start.line, "character": start.character}
    return {}
