"""Savings in each saved value: a smaller form of it would do, or none at all.

Invariant: only values that own memory are reported, each for one reason, the largest first: dead, then a mask
in numbers, then a precision wider than the value's inputs.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from aotlens.build.dead_values import SAME_GRADIENTS, DeadValueCheck, statically_dead
from aotlens.build.value_ranges import ValueRanges
from aotlens.capture.operators import aten
from aotlens.ir.program import Node
from aotlens.ir.tensor_text import short_dtype
from aotlens.model.report import Partition, SavedValue, Saving
from aotlens.partition.records import Partitioned
from aotlens.partition.storages import node_bytes

RANDOM_MASKS = frozenset({aten.bernoulli.p, aten.bernoulli.default, aten.bernoulli.Tensor})
CASTS = frozenset({aten._to_copy.default, torch.ops.prims.convert_element_type.default})


def with_savings(
    partition: Partition, parts: Partitioned, checked: DeadValueCheck | None = None
) -> Partition:
    """Return the same rows, each with its possible saving; `checked` is the result of replacing values.

    A value packed by a hook has the form that the user chose.
    """
    nodes = {value.node.name: value.node for value in parts.saved if value.packs is None}
    finder = _Finder(parts, checked)
    rows = tuple(
        replace(row, saving=finder.saving(row, nodes[row.node])) if row.bytes and row.node in nodes else row
        for row in partition.saved
    )
    return replace(partition, saved=rows)


class _Finder:
    def __init__(self, parts: Partitioned, checked: DeadValueCheck | None) -> None:
        self._ranges = ValueRanges()
        self._widened: dict[int, Node | None] = {}
        by_numbers = dict.fromkeys(checked.dead if checked is not None else (), SAME_GRADIENTS)
        self._dead = by_numbers | statically_dead(parts)
        self._saved = {id(value.node): value.size_bytes for value in parts.saved}
        self._casts: dict[int, list[Node]] = {}
        nodes = parts.joint.program.nodes
        self._one_precision = len({node.val.dtype for node in nodes if _is_float(node)}) < 2
        for node in nodes:  # in order, so that no answer needs a long recursion
            self._ranges.range_of(node)
            if not self._one_precision:
                self.widened(node)
            if node.op in CASTS:
                self._casts.setdefault(id(node.args[0]), []).append(node)

    def saving(self, row: SavedValue, node: Node) -> Saving | None:
        checks: tuple[Callable[[SavedValue, Node], Saving | None], ...] = (
            self._as_dead,
            self._as_mask,
            self._as_copy,
            self._as_widened,
        )
        return next((form for check in checks if (form := check(row, node)) is not None), None)

    def _as_dead(self, row: SavedValue, node: Node) -> Saving | None:
        reason, numbers = self._dead.get(id(node)), self._ranges.range_of(node)
        unknown = any(self._ranges.range_of(source) is None for source in node.inputs())
        if numbers is not None and len(numbers) == 1 and unknown:
            reason = f"it is always {next(iter(numbers)):g}"
        return Saving("dead", row.bytes, reason) if reason is not None else None

    def _as_mask(self, row: SavedValue, node: Node) -> Saving | None:
        numbers, width = self._ranges.range_of(node), node.val.element_size()
        if numbers is None or len(numbers) != 2 or width == 1 or self._is_from_random_mask(node):
            return None
        shown = " and ".join(f"{number:g}" for number in sorted(numbers))
        reason = f"its only values are {shown}, so a boolean mask with one byte per element is enough"
        return Saving("mask", row.bytes - row.bytes // width, reason)

    def _is_from_random_mask(self, node: Node) -> bool:
        """Return True if it is computed from a random mask, whose boolean form the engine has."""
        return any(
            source.op in RANDOM_MASKS
            or (self._ranges.range_of(source) is not None and self._is_from_random_mask(source))
            for source in node.inputs()
        )

    def _as_copy(self, row: SavedValue, node: Node) -> Saving | None:
        """Return the saving of a value of which a narrower copy is saved too."""
        for cast in self._casts.get(id(node), ()):
            if self._saved.get(id(cast)) and cast.val.is_floating_point() and _is_narrower(cast, node):
                reason = f"its {short_dtype(cast.val.dtype)} copy is saved as well"
                return Saving("copy", self._saved[id(cast)], reason, cast.origin.location.innermost)
        return None

    def _as_widened(self, row: SavedValue, node: Node) -> Saving | None:
        """Return the saving of a value that is wider than all of its inputs."""
        cause = None if self._one_precision else self.widened(node)
        if cause is None:
            return None
        narrow = min(_equals(cause), key=lambda source: source.val.element_size())
        before, after = short_dtype(narrow.val.dtype), short_dtype(node.val.dtype)
        others = [source for source in cause.inputs() if not _is_narrower(source, cause)]
        by = f" together with a value of dtype {after}" if others and cause.op not in CASTS else ""
        reason = f"it is computed from {before} and converted to {after}{by}"
        saved_bytes = row.bytes - row.bytes * narrow.val.element_size() // node.val.element_size()
        return Saving("precision", saved_bytes, reason, cause.origin.location.innermost)

    def widened(self, node: Node) -> Node | None:
        """Return the node that made a value of this size wider than all of its inputs."""
        if id(node) in self._widened:
            return self._widened[id(node)]
        self._widened[id(node)] = None
        sources = _equals(node)
        wide = [source for source in sources if not _is_narrower(source, node)]
        widening: Node | None = None
        if sources and not wide:
            widening = node
        elif wide:
            causes = [self.widened(source) for source in wide]
            widening = causes[0] if all(cause is not None for cause in causes) else None
        self._widened[id(node)] = widening
        return widening


def _equals(node: Node) -> list[Node]:
    """Return the floating-point values with as many elements that a node reads."""
    if not _is_float(node):
        return []
    count = _elements(node)
    return [source for source in node.inputs() if _is_float(source) and _elements(source) == count]


def _elements(node: Node) -> int:
    """Return the number of elements, with example values for symbols."""
    count = node.val.numel()
    return count if type(count) is int else node_bytes(node) // node.val.element_size()


def _is_float(node: Node) -> bool:
    return isinstance(node.val, torch.Tensor) and node.val.is_floating_point()


def _is_narrower(node: Node, than: Node) -> bool:
    return _is_float(node) and bool(node.val.element_size() < than.val.element_size())
