"""Derive what torch saves for the backward and what it recomputes from the slots of the logged graphs.

Invariant: the choice is torch's and is logged; bytes, owners and readers are derived from the graphs.  Why
torch's solver chose it is not in the log, and the report says so.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod

from aotlens.model.report import Input, Owner, Partition, RecomputedValue, SavedValue, Tensor, Use
from aotlens.trace.facts import GraphSet
from aotlens.trace.graphs.metadata import Metadata
from aotlens.trace.graphs.records import Graph, GraphNode, base_slot
from aotlens.trace.graphs.tensor_text import Hints, size_value, tensor_of
from aotlens.trace.source.lines import Locate, span_of

__all__ = ["TORCH_CHOSE", "base_of", "partition_of"]

TORCH_CHOSE = "chosen by torch's solver; the log does not say why"
POLICY = "torch's own"

_PLAIN = re.compile(r"(?:Plain|Param|Buffer)AOTInput\(idx=(\d{1,9})\)")
_VIEWS = frozenset(
    {
        "alias",
        "as_strided",
        "detach",
        "diagonal",
        "expand",
        "permute",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unfold",
        "unsqueeze",
        "view",
        "_unsafe_view",
        "unbind",
    }
)


def partition_of(
    graphs: GraphSet, inputs: tuple[Input, ...], metadata: Metadata | None, locate: Locate
) -> Partition | None:
    """Return torch's choice; None in inference, and if the graphs are not in the log."""
    forward, backward = graphs.forward, graphs.backward
    if forward is None or backward is None:
        return None
    saved = tuple(_Saved(graphs, forward, backward, inputs, metadata).rows(locate))
    recomputed = tuple(_recomputed(graphs, forward, backward, locate))
    return Partition(POLICY, saved, recomputed, sum(value.bytes for value in saved))


class _Saved:
    """Finds the saved values of one pair of graphs."""

    def __init__(
        self,
        graphs: GraphSet,
        forward: Graph,
        backward: Graph,
        inputs: tuple[Input, ...],
        metadata: Metadata | None,
    ) -> None:
        self.graphs = graphs
        self.forward = forward
        self.backward = backward
        self.inputs = inputs
        self.metadata = metadata
        self.nodes = {node.name: node for node in forward.nodes}
        self.arguments = {argument.name: argument for argument in forward.arguments}
        self.readers: dict[str, list[GraphNode]] = {}
        for node in backward.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.positions = {argument.name: index for index, argument in enumerate(backward.arguments)}
        self.returned = {
            self._base(result.name)
            for result in forward.results
            if not result.slot.startswith("SavedForBackwards")
            and (result.slot or result.name not in self.positions)
        }

    def rows(self, locate: Locate) -> Iterator[SavedValue]:
        counted: set[str] = set()
        for result in self.forward.results:
            if not self._is_saved(result.slot, result.name):
                continue
            node, argument = self.nodes.get(result.name), self.arguments.get(result.name)
            type_ = node.type if node else argument.type if argument else ""
            tensor = tensor_of(type_, self.graphs.facts.hints)
            if tensor is not None:
                yield self._row(result.name, node, tensor, counted, locate)

    def _is_saved(self, slot: str, name: str) -> bool:
        """Return True for a saved value; older torch has no slots, so equal names in the backward decide."""
        return slot.startswith("SavedForBackwards") or (not slot and name in self.positions)

    def _row(
        self, name: str, node: GraphNode | None, tensor: Tensor, counted: set[str], locate: Locate
    ) -> SavedValue:
        base = self._base(name)
        owner = self._owner(base)
        is_new = owner == "new" and base not in counted
        counted.add(base)
        uses = tuple(
            Use(reader.name, next(iter(span_of(locate, reader)), None))
            for reader in self.readers.get(name, ())
        )
        user_input = self._input(name)
        return SavedValue(
            name,
            tensor,
            (tensor.bytes or 0) if is_new else 0,
            owner,
            TORCH_CHOSE,
            next(iter(span_of(locate, node)), None) if node else None,
            uses,
            donated=bool(
                self.metadata and self.metadata.donated and self.positions.get(name) in self.metadata.donated
            ),
            name=user_input.name if user_input else None,
            freedom="choice",
            op=node.target if node else "",
        )

    def _base(self, name: str) -> str:
        return base_of(name, self.nodes)

    def _owner(self, base: str) -> Owner:
        if base in self.arguments:
            user_input = self._input(base)
            return "parameter" if user_input and user_input.kind in ("Parameter", "Buffer") else "input"
        return "output" if base in self.returned else "new"

    def _input(self, name: str) -> Input | None:
        """Return the user's input for an argument of the AOT graph."""
        argument = self.arguments.get(name)
        slot = _PLAIN.fullmatch(base_slot(argument.slot)[0]) if argument else None
        index = int(slot[1]) if slot else -1
        return self.inputs[index] if 0 <= index < len(self.inputs) else None


def base_of(name: str, nodes: Mapping[str, GraphNode]) -> str:
    """Return the value that owns a value's memory, through the view operators above it."""
    for _ in range(len(nodes) + 1):
        node = nodes.get(name)
        if node is None or not node.inputs or _operator(node.target) not in _VIEWS:
            return name
        name = node.inputs[0]
    return name


def _operator(target: str) -> str:
    """Return `view` for `aten.view.default`."""
    parts = target.split(".")
    return parts[1] if len(parts) > 2 and parts[0] == "aten" else target


def _recomputed(
    graphs: GraphSet, forward: Graph, backward: Graph, locate: Locate
) -> Iterator[RecomputedValue]:
    """Yield backward nodes that are forward nodes too, with the same name and expression.

    Views cost nothing and are omitted, as in our own reports.
    """
    whole = graphs.joint or forward
    ahead = {node.name: node for node in whole.nodes}
    results = {result.name for result in forward.results if not result.slot.startswith("SavedForBackwards")}
    part = _ancestors(whole, results & {result.name for result in whole.results} or results)
    in_forward = {node.name for node in forward.nodes}
    types = {node.name: node.type for node in (*forward.nodes, *whole.nodes, *backward.nodes)}
    types |= {argument.name: argument.type for argument in (*whole.arguments, *backward.arguments)}
    for node in backward.nodes:
        counterpart = ahead.get(node.name)
        if counterpart is None or node.name not in part or counterpart.target != node.target:
            continue
        if _operator(node.target) in _VIEWS or node.target.startswith("getitem"):
            continue
        tensor = tensor_of(node.type, graphs.facts.hints)
        region = f"in activation checkpoint {node.region}" if node.region else TORCH_CHOSE
        yield RecomputedValue(
            node.name,
            (tensor.bytes or 0) if tensor else 0,
            _flops(node, tensor, types, graphs.facts.hints),
            region,
            next(iter(span_of(locate, node)), None),
            freedom="choice",
            op=node.target,
            in_forward=node.name in in_forward,
        )


def _ancestors(graph: Graph, names: set[str]) -> set[str]:
    """Return the nodes that the user's outputs need: what only the backward computes is not recomputed."""
    needed = set(names)
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return needed


_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm"})


def _flops(node: GraphNode, result: Tensor | None, types: dict[str, str], hints: Hints) -> int:
    """Return the operations as in our reports: products by their sizes, else each element read or written."""
    read = [tensor for name in node.inputs if (tensor := tensor_of(types.get(name, ""), hints)) is not None]
    written = _elements(result, hints) if result is not None else 0
    operator = _operator(node.target)
    if operator in _PRODUCTS and len(read) >= 2:
        left = read[-2]
        return 2 * written * (size_value(str(left.shape[-1]), hints) or 0) if left.shape else 0
    return max(sum(_elements(tensor, hints) for tensor in read), written)


def _elements(tensor: Tensor, hints: Hints) -> int:
    return prod(size_value(str(size), hints) or 0 for size in tensor.shape)
