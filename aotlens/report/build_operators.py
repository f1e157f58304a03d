"""The rows of operators that are more than a computation: effects, and those that take functions."""

from collections.abc import Iterator

from aotlens.ir.program import (
    Node,
    Program,
    getitem,
    is_draw,
    is_higher_order,
    op_name,
)
from aotlens.partition.records import Partitioned
from aotlens.report import records as rows
from aotlens.report.sites import site_of

IN_ORDER = "an effect: it runs once a call, in the order of your code, whoever reads its result"
DRAWS = "its functions draw random numbers: it runs once a call, in the order of your code"
NESTED = "a higher-order operator: its functions are programs inside the graph"


def build_operators(parts: Partitioned) -> tuple[rows.SpecialOperator, ...]:
    """In the order in which they run."""
    forward: rows.Phase = "inference" if parts.backward is None else "forward"
    found = list(_of_program(parts.forward, forward))
    if parts.backward is not None:
        found += _of_program(parts.backward, "backward")
    return tuple(found)


def _of_program(program: Program, phase: rows.Phase) -> Iterator[rows.SpecialOperator]:
    for node in program.nodes:
        effect = node.origin.effect and node.origin.stage == "captured"
        if node.op in (None, getitem) or not (effect or is_higher_order(node.op)):
            continue
        site = site_of(node.origin)
        kind: rows.SpecialKind = "effect" if effect else "higher_order"
        reason = _in_order(node) if effect else NESTED
        yield rows.SpecialOperator(_name(node), kind, phase, reason, () if site is None else (site,))


def _in_order(node: Node) -> str:
    return DRAWS if node.bodies() and is_draw(node) else IN_ORDER


def _name(node: Node) -> str:
    return op_name(node.op)
