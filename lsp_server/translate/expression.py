"""The result of compiling one expression: its operators, saved values and reasons, backward, kernels."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from aotlens.model.report import (
    Input,
    Kernel,
    Output,
    RecomputedValue,
    SavedValue,
    SideEffect,
    Site,
    StageNode,
    Target,
    WrapperStep,
)
from aotlens.model.spans import lines_text
from aotlens.view.kernels import floor_text, moved_bytes, occupancy_text
from aotlens.view.ledger import aliasing
from aotlens.view.names import first_names, op_name
from aotlens.view.partition.reasons import why_text
from aotlens.view.partition.saved import name_at_expression
from aotlens.view.quantities import human_bytes, human_flops, human_us, multiplied
from lsp_server.index import Spot, saved_bytes_inside
from lsp_server.translate.wording import code, of_op, shapes, shortened, step_cost

ROWS = (6, 3, 2)
"""Rows of each kind, fewer where there are many kinds: the first number that keeps the text below
`TALLEST`."""

TALLEST = 29
FEW_OPS = 3
FEW_RESULTS = 3
"""Types of a call that returns several tensors; the others are an ellipsis."""
MOST_READERS = 4
"""At most so many lines whose backward reads a saved value."""
MOST_READ = 2_000
"""Facts of a kind that are looked at: a loop may make thousands of one line."""
PASSING_OPS = frozenset(
    f"aten.{name}"
    for name in (
        *("_reshape_alias", "_to_copy", "_unsafe_view", "alias", "clone", "detach", "expand", "permute"),
        *("reshape", "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view"),
    )
)
"""Operators that only pass a value on; shown where an expression has no others."""

Fact = TypeVar("Fact")
Line = tuple[str, str]
"""A row's name, and the rest of it; rows that differ only in the name are merged."""
NUMBERED_NODE = re.compile(r"\b((?:need|saving) [a-z]\w*?)_\d+\b")
"""Another node in a reason; in the next layer it has another number."""
OF_GRADIENT = "part of the gradient of "
"""The start of a backward node's reason, which the section's title already shows."""


@dataclass(frozen=True, slots=True)
class Row:
    """Equal facts in one line."""

    text: str
    facts: int


@dataclass(frozen=True, slots=True)
class Section:
    """The facts of one kind at an expression."""

    title: str
    rows: tuple[Row, ...]
    facts: int
    """All of them, also those that are in none of the rows."""

    def text(self, most: int) -> str:
        """Return the title and the first `most` rows, and how many facts they leave out."""
        rows = self.rows[:most]
        left = self.facts - sum(row.facts for row in rows)
        head = [f"{self.title}:"] if self.title else []
        more = [f"- … {left} more"] if left else []
        return "\n".join([*head, *(row.text for row in rows), *more])


def expression_text(spot: Spot, source: str = "") -> str:
    """Return everything that one target has at one expression, short enough for a popup.

    `source` is the text of the expression, which comes first; it is always the same for one spot. The text is
    written once, since a loop's expression may have thousands of nodes.
    """
    if spot.text is None:
        spot.text = _text(spot, source)
    return spot.text


def _text(spot: Spot, source: str) -> str:
    head = "\n\n".join(filter(None, [_headline(spot, source), _variables(spot)]))
    sections = _sections(spot)
    texts = ["\n\n".join([head, *(section.text(most) for section in sections)]) for most in ROWS]
    return next((text for text in texts if text.count("\n") < TALLEST), texts[-1])


def _sections(spot: Spot) -> list[Section]:
    again = {value.node for value in spot.recomputed}
    costly = [value for value in spot.recomputed if value.bytes or value.flops]
    backward = [node for node in _calls(spot.backward) if node.name not in again]
    sections = (
        _section("", _calls(spot.forward), _call_line),
        _section("Saves for the backward", spot.saved, _saved_line, _in_all),
        _section("Recomputed in the backward", costly, _recomputed_line, _in_all),
        _section("Backward", backward, _call_line),
        _section("Kernels", spot.kernels, _kernel_line),
        _section("Mutates", spot.inputs, _mutation_line),
        _section("Returned", _returned(spot), partial(_output_line, spot.target)),
        _section("Side effects", spot.side_effects, _side_effect_line),
        _section("Wrapper", spot.steps, _step_line),
    )
    return [section for section in sections if section.rows]


def _headline(spot: Spot, source: str) -> str:
    """Return the expression, its type, its cost, then its operators."""
    if spot.variables and not spot.forward:
        last = spot.variables[-1]
        grad = " · requires grad" if last.tensor.requires_grad else ""
        return f"**{code(last.name)}** · `{shapes(variable.tensor for variable in spot.variables)}`{grad}"
    facts = [code(shortened(source))] if source else []
    facts += [type_] if (type_ := _type(spot)) else []
    saved = sum(value.bytes for value in spot.saved)
    inside = 0 if saved else saved_bytes_inside(spot)
    facts += [f"saves {human_bytes(saved)}"] if saved else []
    facts += [f"saves {human_bytes(inside)} inside"] if inside else []
    facts += [f"returned as {code(row.name)}" for row in _returned(spot)[:1]]
    facts += [f"stored in {code(row.name)}" for row in spot.outputs if row.is_side_effect][:1]
    facts += [_operators(spot)]
    return " · ".join(filter(None, facts)) or "wrapper"


def _type(spot: Spot) -> str:
    """Return the type of the expression's value; empty where no value of it is known.

    A returned value has the type of the output, others that of the nodes that the rest reads: the last
    operators of batch norm update its buffers, and layer norm also returns values that only the backward
    reads.
    """
    tensors = [row.tensor for row in _returned(spot) if row.tensor is not None]
    tensors = tensors or [node.tensor for node in spot.results if node.tensor is not None]
    if not tensors and len(spot.forward) == 1 and spot.forward[0].tensor is not None:
        tensors = [spot.forward[0].tensor]
    several = [code(tensor.short()) for tensor in tensors[: FEW_RESULTS + 1]]
    if len(several) > FEW_RESULTS:
        several[FEW_RESULTS:] = ["…"]
    return several[0] if len(several) == 1 else f"({', '.join(several)})" if several else ""


def _operators(spot: Spot) -> str:
    every = list(dict.fromkeys(op_name(node.target) for node in _calls(spot.forward or spot.backward)))
    ops = [op for op in every if op not in PASSING_OPS] or every
    return first_names([code(op) for op in ops], FEW_OPS)


def _variables(spot: Spot) -> str:
    if not spot.variables or spot.forward:
        return ""
    tensor = spot.variables[-1].tensor
    memory = "" if tensor.bytes is None else f", {human_bytes(tensor.bytes)}"
    return f"stride {list(tensor.stride)}, {tensor.device}{memory}"


def _calls(nodes: Sequence[StageNode]) -> list[StageNode]:
    """Return operators that compute, then those that pass a value on; without `getitem` of a call's
    results."""
    calls = [node for node in nodes if not node.target.startswith("getitem")]
    return sorted(calls, key=lambda node: op_name(node.target) in PASSING_OPS)


def _call_line(node: StageNode) -> Line:
    shape = f" `{node.tensor.short()}`" if node.tensor else ""
    reason = f", {node.reason}" if node.reason and not node.reason.startswith(OF_GRADIENT) else ""
    return code(node.name), f" = {code(node.target)}{shape}{reason}"


def _saved_line(value: SavedValue) -> Line:
    cost = human_bytes(value.bytes) if value.bytes else "free"
    readers = [use.span for use in value.used_by if use.span]
    home = value.span.file if value.span else None
    used = f"; read by the backward of {lines_text(readers, home, MOST_READERS)}" if readers else ""
    return code(name_at_expression(value)), f" `{value.tensor.short()}`, {cost}; {why_text(value)}{used}"


def _recomputed_line(value: RecomputedValue) -> Line:
    cost = f"{human_flops(value.flops)} instead of {human_bytes(value.bytes)}"
    return code(name_at_expression(value)), f", {cost}; {why_text(value)}"


def _mutation_line(fact: tuple[Input, Site]) -> Line:
    row, site = fact
    return code(row.name), f": {row.reason}{of_op(site.op)}"


def _step_line(step: WrapperStep) -> Line:
    return step.name, f": {step.reason}{step_cost(step)}"


def _output_line(target: Target, row: Output) -> Line:
    shape = f" `{row.tensor.short()}`" if row.tensor else ""
    return code(row.name), f"{shape}, {aliasing(target, row)}: {row.reason}"


def _returned(spot: Spot) -> list[Output]:
    return [row for row in spot.outputs if not row.is_side_effect]


def _side_effect_line(row: SideEffect) -> Line:
    return code(row.name), f" ({row.handling}): {row.reason}"


def _kernel_line(kernel: Kernel) -> Line:
    moved = moved_bytes(kernel)
    figures = [
        f"moves {human_bytes(moved)}" if moved is not None else "",
        f"{kernel.registers} registers" if kernel.registers is not None else "",
        f"spills {human_bytes(kernel.spill_bytes)}" if kernel.spill_bytes else "",
        occupancy_text(kernel.configs[0]) if kernel.configs else "",
        human_us(kernel.time_us) if kernel.time_us is not None else "",
        floor_text(kernel.floor_us) if kernel.floor_us is not None else "",
        f"failed: {kernel.error.strip().splitlines()[-1]}" if kernel.error else "",
    ]
    return code(kernel.name), ", ".join([f" ({kernel.phase}, {kernel.target})", *filter(None, figures)])


def _in_all(facts: Sequence[SavedValue | RecomputedValue]) -> str:
    """Return the total cost of equal values."""
    total_bytes = sum(value.bytes for value in facts)
    return f" ({human_bytes(total_bytes)} in all)" if total_bytes else ""


def _no_total(facts: Sequence[Fact]) -> str:
    return ""


def _section(
    title: str,
    facts: Sequence[Fact],
    line: Callable[[Fact], Line],
    total: Callable[[Sequence[Fact]], str] = _no_total,
) -> Section:
    """Return the first rows that differ in more than a name; repetitions of a loop are counted, with their
    total."""
    rows: dict[str, tuple[str, list[str], list[Fact]]] = {}
    for fact in facts[:MOST_READ]:
        name, text = line(fact)
        alike = NUMBERED_NODE.sub(r"\1", text)
        if alike in rows or len(rows) < ROWS[0]:
            _, names, same = rows.setdefault(alike, (text, [], []))
            names.append(name)
            same.append(fact)
    merged = tuple(
        Row(f"- {_named(names)}{total(same) if len(set(names)) > 1 else ''}{text}", len(same))
        for text, names, same in rows.values()
    )
    return Section(title, merged, len(facts))


def _named(names: Sequence[str]) -> str:
    """`` `mul` ``, or the first of several with their number."""
    return names[0] if len(set(names)) == 1 else f"{names[0]} {multiplied(len(set(names)))}"
