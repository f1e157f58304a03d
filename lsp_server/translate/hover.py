"""Hovers over an expression, an argument, or a whole function.

The first line of each answer is the short one that small popups show; at most `MOST_ROWS` rows of a kind
follow.
"""

import re

from lsprotocol import types

from aotlens.model.report import Input, Memory, Span, Target
from aotlens.model.spans import line_text
from aotlens.view.ledger import handling, is_mutated, kind_name
from aotlens.view.names import node_in_phase
from aotlens.view.partition.reasons import budget_text
from aotlens.view.partition.saved import recomputed_total, saved_total
from aotlens.view.quantities import (
    applied_steps,
    counted,
    human_bytes,
    per_call,
    target_summary,
    timings_summary,
)
from lsp_server.index import contains
from lsp_server.text.document import Document
from lsp_server.text.positions import char_index
from lsp_server.translate.expression import expression_text
from lsp_server.translate.ranges import span_range
from lsp_server.translate.wording import STALE, code, markup, of_op, step_cost
from lsp_server.views import Position, Shown, Views

MOST_ROWS = 6
WORD = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def hover(views: Views, path: str, document: Document, cursor: types.Position) -> types.Hover | None:
    """Return the facts of the newest trace that has any at the position."""
    where = (cursor.line, cursor.character)
    for shown in views.shown_in(path):
        position = shown.view.traced_position(*where)
        if position is None:
            continue
        answer = (
            _on_definition(shown, position)
            or _on_expression(shown, position)
            or _on_name(views, shown, document, where)
        )
        if answer is not None:
            text, span = answer
            return _answer(views, shown, text, span)
    return None


def _answer(views: Views, shown: Shown, text: str, span: Span | None) -> types.Hover:
    note = "" if shown.is_fresh else f"\n\n{STALE}"
    return types.Hover(markup(views.client, text + note), span_range(shown.view, span) if span else None)


Found = tuple[str, Span | None]


def _on_definition(shown: Shown, position: tuple[int, int]) -> Found | None:
    """Return the facts for a target's name, or for one of its arguments, in its definition."""
    for target in shown.targets():
        signature = shown.view.index.signatures.get(target.qualname)
        if signature is None:
            continue
        if contains(signature.name, *position):
            same = [other for other in shown.targets() if other.qualname == target.qualname]
            return "\n\n---\n\n".join(map(function_text, same)), signature.name
        for row in target.inputs:
            span = signature.arguments.get(row.name)
            if span and contains(span, *position):
                return argument_text(target, row), span
    return None


def _on_expression(shown: Shown, position: tuple[int, int]) -> Found | None:
    spots = [spot for spot in shown.view.index.spots_at(*position) if shown.has(spot.target)]
    if not spots:
        return None
    inner = [spot for spot in spots if spot.span == spots[0].span]
    source = shown.view.text_of(inner[0].span)
    texts = dict.fromkeys(expression_text(spot, source) for spot in inner)
    return "\n\n---\n\n".join(texts), inner[0].span


def _on_name(views: Views, shown: Shown, document: Document, where: Position) -> Found | None:
    """Return the facts for an argument, parameter or buffer at a position where it is only read."""
    line = document.line(where[0])
    index = char_index(line, where[1], views.encoding)
    word = next((match[0] for match in WORD.finditer(line) if match.start() <= index <= match.end()), None)
    position = shown.view.traced_position(*where)
    if word is None or position is None:
        return None
    for target in shown.view.index.enclosing(position[0]):
        for row in target.inputs if shown.has(target) else ():
            if word == row.name or (row.fqn is not None and word == f"self.{row.fqn}"):
                return argument_text(target, row), None
    return None


def function_text(target: Target) -> str:
    """Return the summary of a target, for its name."""
    mutated = sum(is_mutated(row) for row in target.inputs)
    views = sum(row.base is not None for row in target.outputs)
    returned = sum(not row.is_side_effect for row in target.outputs)
    rows = [
        f"**{target.qualname}** · {target_summary(target)}",
        "",
        f"- {counted(len(target.inputs), 'input')}, {mutated} mutated",
        f"- {counted(returned, 'output')}, {views} views of other tensors",
    ]
    if target.side_effects:
        rows.append(f"- side effects on {', '.join(code(row.name) for row in target.side_effects[:3])}")
    if target.partition:
        saved, recomputed = saved_total(target.partition), recomputed_total(target.partition)
        rows.append(f"- policy {target.partition.policy}: {saved} saved, {recomputed} recomputed")
        if target.partition.budget is not None:
            rows.append(f"- {budget_text(target.partition.budget)}")
        elif target.partition.default_bytes is not None:
            rows.append(f"- `default` would save {human_bytes(target.partition.default_bytes)}")
    steps = applied_steps(target)[:MOST_ROWS]
    rows += [f"- wrapper: {step.name}, {step.reason}{step_cost(step)}" for step in steps]
    if target.memory:
        rows.append(f"- peak {human_bytes(target.memory.peak_bytes)}{_where(target.memory, target.file)}")
    if target.timings_ms:
        rows.append(f"- compiled in {timings_summary(target)}")
    return "\n".join(rows)


def _where(memory: Memory, home: str | None) -> str:
    """Return `: backward, mm_1, line 24`."""
    if memory.peak_node is None:
        return ""
    location = f", {line_text(memory.peak_span, home)}" if memory.peak_span is not None else ""
    return f": {node_in_phase(memory.peak_node, memory.peak_phase)}{location}"


def argument_text(target: Target, row: Input) -> str:
    """One row of the ledger of inputs."""
    shape = f" · `{row.tensor.short()}`" if row.tensor else ""
    grad = ", requires grad" if row.requires_grad else ""
    head = f"**{code(row.name)}** · {kind_name(row.kind)} {row.index}{shape}{grad}"
    rows = [head, "", _handling(target, row)]
    rows += [
        f"- {line_text(site.span, target.file)}: {code(site.text)}{of_op(site.op)}"
        for site in row.sites[:MOST_ROWS]
    ]
    cost = _cost(target, row)
    if cost:
        rows.append(f"- costs {per_call(cost)}")
    return "\n".join(rows)


def _handling(target: Target, row: Input) -> str:
    """Return how an input is handled and why: `Copied back: the graph writes to it …`."""
    words = handling(target, row)
    text = row.reason if words.startswith("read") and row.reason else words
    details = f": {row.reason}" if row.reason and text == words else ""
    return f"{text[0].upper()}{text[1:]}{details}"


def _cost(target: Target, row: Input) -> int:
    """Return the bytes that wrapper steps move per call because of this input's own sites."""
    sites = {site.span for site in row.sites}
    return sum(
        step.bytes_per_call
        for step in applied_steps(target)
        if step.sites and all(site.span in sites for site in step.sites)
    )
