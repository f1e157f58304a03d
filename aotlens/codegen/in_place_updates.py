"""Updates of inputs in one step: `copy_(b, add(b, 1))` becomes `add_(b, 1)`.

Invariant: the program computes the same; only the update reads the input, and only the write-back reads the
new value, so sharing one storage is not observable.
"""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from aotlens.capture.operators import Kind, describe
from aotlens.ir.program import Node, Program, nodes_in
from aotlens.torch_api.operators import OpOverload

aten = torch.ops.aten


def with_in_place_updates(program: Program) -> Program:
    """Return the program with each update of an input as one in-place operator where possible."""
    written = [node for node in program.nodes if node.op is aten.copy_.default and node.origin.effect]
    if not written:
        return program
    readers = _readers(program)
    inputs = {id(program_input.node) for program_input in program.inputs}
    changed: dict[int, Node | None] = {}
    for write in written:
        target, value = write.args[:2]
        if id(target) in inputs and _fits(target, value, readers):
            changed[id(value)] = replace(value, op=_in_place_variant(value.op), origin=write.origin)
            changed[id(write)] = None
    nodes = (changed.get(id(node), node) for node in program.nodes)
    return replace(program, nodes=tuple(node for node in nodes if node is not None))


def _readers(program: Program) -> Counter[int]:
    """Count how often each value is read, by operators and as an output."""
    counts = Counter(id(source) for node in program.nodes for source in node.inputs())
    counts.update(id(source) for source in nodes_in(out.value for out in program.outputs))
    return counts


def _fits(target: Node, value: Any, readers: Counter[int]) -> bool:
    """Return True if the value is computed from the target by an operator with an in-place variant."""
    if type(value) is not Node or not value.args or value.args[0] is not target:
        return False
    if readers[id(target)] != 2 or readers[id(value)] != 1 or _in_place_variant(value.op) is None:
        return False
    old, new = target.val, value.val
    return bool(old.dtype == new.dtype and old.stride() == new.stride() and old.shape == new.shape)


@cache
def _in_place_variant(op: Any) -> Any:
    """Return `add_` for `add`; None if there is no exact in-place variant."""
    if not isinstance(op, OpOverload) or op.namespace != "aten":
        return None
    name, _, overload = op.name().removeprefix("aten::").partition(".")
    variant = getattr(getattr(aten, f"{name}_", None), overload or "default", None)
    if variant is None:
        return None
    known = describe(variant)
    same = known.kind is Kind.MUTATION and known.written == (0,) and known.functional is op
    return variant if same and not known.random else None
