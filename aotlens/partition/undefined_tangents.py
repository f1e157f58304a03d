"""The backward for calls in which some tangents are undefined, and where zeros may not replace them.

Invariant: gradients are linear in the tangents, so a gradient that depends on undefined tangents only is
undefined too, as in eager. Zeros have the same effect unless a factor may be infinite.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import torch

from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node, Program, has_effect, map_nodes, reachable
from aotlens.ir.slots import GRADIENTS, Tangent
from aotlens.partition.rules import is_number

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class InfiniteFactor:
    """A backward operator that multiplies by a value that may be infinite, so that a zero tangent becomes
    nan."""

    node: Node
    tangents: frozenset[int]
    """Identities of the tangents that it depends on; it is not needed where all of them are undefined."""


def infinite_factors(program: Program) -> tuple[InfiniteFactor, ...]:
    """Return one operator for each minimal set of tangents that reaches such an operator."""
    tangents = [item.node for item in program.inputs_of(Tangent)]
    masks = {id(node): 1 << index for index, node in enumerate(tangents)}
    every, plain, by_mask = (1 << len(tangents)) - 1, set[int](), dict[int, Node]()
    if len(tangents) < 2:
        return ()
    for node in program.nodes:
        if is_number(node):
            continue
        mask, is_plain = 0, node.constant is None
        for source in node.inputs():
            mask |= masks.get(id(source), 0)
            is_plain = is_plain and (id(source) in plain or is_number(source))
        if mask:
            masks[id(node)] = mask
            if mask != every and mask not in by_mask and _multiplies(node, masks, plain):
                by_mask[mask] = node
        elif is_plain:
            plain.add(id(node))
    least = [mask for mask in by_mask if not any(other & mask == other for other in by_mask if other != mask)]
    return tuple(InfiniteFactor(by_mask[mask], frozenset(_tangent_ids(mask, tangents))) for mask in least)


def _tangent_ids(mask: int, tangents: list[Node]) -> Iterator[int]:
    return (id(node) for index, node in enumerate(tangents) if mask >> index & 1)


def _multiplies(node: Node, masks: dict[int, int], plain: set[int]) -> bool:
    """Return True if an operator on gradients reads another operand that may be infinite, or divides by
    zero."""
    numbers = [arg for arg in node.args if isinstance(arg, (int, float))]
    if any(not isfinite(number) or (number == 0 and "div" in node.target) for number in numbers):
        return True
    return any(
        id(source) not in masks and id(source) not in plain and _may_be_infinite(source.val)
        for source in node.inputs()
    )


def _may_be_infinite(val: Any) -> bool:
    if isinstance(val, (list, tuple)):
        return any(map(_may_be_infinite, val))
    if isinstance(val, torch.Tensor):
        return val.is_floating_point() or val.is_complex()
    return isinstance(val, (float, torch.SymFloat))


def without_tangents(
    program: Program, missing: Collection[int], is_defined: Callable[[Any], bool]
) -> Program:
    """Return the program for calls in which the tangents with these identities are undefined; inputs stay.

    A gradient is None, by its slot, if it depends on undefined tangents only. A defined one may depend on no
    remaining value, where the backend's passes proved it to be zero.
    """
    rewriter = _Rewriter(program, set(missing))
    nodes = [added for node in program.nodes for added in (*rewriter.rewritten(node), node)]
    outputs = []
    for out in program.outputs:
        value = rewriter.current(out.value)
        if type(value) is Node and id(value) in rewriter.undefined:
            is_inside = (
                isinstance(out.slot, GRADIENTS) and out.slot.inner
            )  # the wrapper subclass is built, then dropped
            filled = is_inside or is_defined(out.slot)
            nodes += rewriter.new_zeros(value) if filled else ()
            value = rewriter.zeros_of[id(value)] if filled else None
        outputs.append(replace(out, value=value))
    needed = reachable([out.value for out in outputs], tuple(nodes))
    return Program(program.name, program.inputs, needed, tuple(outputs))


class _Rewriter:
    """Rewrites a program without its undefined tangents, node by node."""

    def __init__(self, program: Program, missing: set[int]) -> None:
        self.undefined = missing
        """Values that depend on undefined tangents only."""
        self.zeros_of: dict[int, Node] = {}
        """The zeros that replace an undefined value where an operator combines it with defined ones."""
        self._defined = {id(item.node) for item in program.inputs_of(Tangent)} - missing
        """Values that depend on a defined tangent."""
        self._replacements: dict[int, Node] = {}
        """The new node for each rewritten node, by identity."""

    def current(self, value: Any) -> Any:
        return self._replacements.get(id(value), value)

    def rewritten(self, node: Node) -> Iterator[Node]:
        """Yield the new nodes for one node of the program."""
        sources = list(node.inputs())
        undefined = [source for source in sources if id(source) in self.undefined]
        has_defined_source = any(id(source) in self._defined for source in sources)
        if undefined and is_number(node):  # a size does not change
            return
        if undefined and not has_defined_source and not has_effect(node):
            self.undefined.add(id(node))
            return
        if has_defined_source:
            self._defined.add(id(node))
        if len(undefined) == 1 and (other := _other_term(node, undefined[0])) is not None:
            self._replacements[id(node)] = self.current(other)
            return
        for source in undefined:
            yield from self.new_zeros(source)
        if undefined or any(id(source) in self._replacements for source in sources):
            change = lambda source: (
                self.zeros_of[id(source)] if id(source) in self.undefined else self.current(source)
            )
            changed = replace(
                node,
                name=f"{node.name}_of_some",
                args=map_nodes(node.args, change),
                kwargs=map_nodes(node.kwargs, change),
            )
            self._replacements[id(node)] = changed
            yield changed

    def new_zeros(self, node: Node) -> tuple[Node, ...]:
        """Return the new nodes that compute zeros like an undefined value."""
        if id(node) in self.zeros_of:
            return ()
        sizes = [
            _new_node(f"size_{dim}_of_{node.name}", aten.sym_size.int, (node, dim), size)
            if isinstance(size, torch.SymInt)
            else size
            for dim, size in enumerate(node.val.shape)
        ]
        # as a recorded `torch.full` has them
        kwargs = {"dtype": node.val.dtype, "device": node.val.device, "pin_memory": False}
        zeros_node = _new_node(
            f"zeros_of_{node.name}", aten.full.default, (sizes, 0), node.val.new_zeros(node.val.shape), kwargs
        )
        self.zeros_of[id(node)] = zeros_node
        return (*(size for size in sizes if type(size) is Node), zeros_node)


def _new_node(
    name: str, op: Any, args: tuple[Any, ...], val: Any, kwargs: dict[str, Any] | None = None
) -> Node:
    origin = Origin(NO_ORIGIN, "", backward=True, stage="runtime", reason="zeros for an undefined tangent")
    return Node(name, op, args, kwargs or {}, val, origin)


def _other_term(node: Node, lost: Node) -> Node | None:
    """Return the other term of a sum of two tensors of the same type and shape; None for every other
    operator."""
    if node.op is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return None
    other = next((term for term in node.args if term is not lost), None)
    return other if type(other) is Node and _alike(other.val, node.val) else None


def _alike(first: Any, second: Any) -> bool:
    shapes = [tuple(map(str, tensor.shape)) for tensor in (first, second)]
    return first.dtype == second.dtype and shapes[0] == shapes[1]
