"""List the collective operations in the graphs of a log, in order, and find where ranks disagree.

Invariant: collectives are listed in the order in which their graphs were compiled, forward before backward;
within a graph in the order in which they start.  Names of process groups are not compared.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from aotlens.model.ranks import Collective, CollectiveMismatch
from aotlens.model.report import Span
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.graphs.records import Graph, GraphNode
from aotlens.trace.graphs.tensor_text import Hints, tensor_of
from aotlens.trace.source.columns import base_name
from aotlens.trace.source.lines import Locate

__all__ = ["GROUP", "collectives_of", "mismatches_of"]

GROUP = re.compile(r"(_c10d_functional(?:_autograd)?\.\w+(?:\.\w+)?\([^\n]*, )'[^'\n]*'\)")
"""The name of the process group, which is the last argument."""
_NAMESPACES = ("_c10d_functional.", "_c10d_functional_autograd.", "c10d.")
_WAITS = frozenset({"wait_tensor"})
_GRAPHS = {
    "aot_forward_graph": "forward",
    "aot_inference_graph": "inference",
    "aot_backward_graph": "backward",
}
_CONSTANT = re.compile(r"'([^']{1,80})'")
MAX_COLLECTIVES = 5_000
_FAR_BACK = 1_000
"""How many nodes are followed back to find one with a user's line."""


def collectives_of(
    compilations: Iterable[CompilationFacts], rank: int, locate: Locate
) -> tuple[Collective, ...]:
    """Return a rank's collectives, at most `MAX_COLLECTIVES`."""
    rows: list[Collective] = []
    for facts in compilations:
        for kind, name in _GRAPHS.items():
            for index in range(len(facts.records(kind))):
                graph = facts.graph(kind, index)
                if graph is not None:
                    rows += _of_graph(graph, name, facts, rank, locate)
        if len(rows) >= MAX_COLLECTIVES:
            break
    return tuple(rows[:MAX_COLLECTIVES])


def mismatches_of(
    by_rank: Mapping[int, Sequence[Collective]],
) -> tuple[tuple[Collective, ...], tuple[CollectiveMismatch, ...]]:
    """Return the first rank's collectives with the ranks that have them, and each rank's first mismatch."""
    first, *others = by_rank
    rows = [*by_rank[first]]
    mismatches = []
    for other in others:
        for position, (row, counterpart) in enumerate(zip_longest(by_rank[first], by_rank[other])):
            if row is None or counterpart is None or _signature(row) != _signature(counterpart):
                mismatches.append(_mismatch(position + 1, (first, row), (other, counterpart)))
                break
            rows[position] = replace(rows[position], ranks=(*rows[position].ranks, other))
    return tuple(rows), tuple(mismatches)


def _of_graph(
    graph: Graph, name: str, facts: CompilationFacts, rank: int, locate: Locate
) -> Iterator[Collective]:
    nodes = {node.name: node for node in graph.nodes}
    types = {argument.name: argument.type for argument in graph.arguments}
    types |= {node.name: node.type for node in graph.nodes}
    for node in graph.nodes:
        operator = base_name(node.target)
        if not node.target.startswith(_NAMESPACES) or operator in _WAITS:
            continue
        sent = [types.get(name, "") for name in node.inputs]
        group = GROUP.search(f"{node.target}({node.expression.partition('(')[2]}")
        constants = _CONSTANT.findall(node.expression)
        yield Collective(
            operator,
            ", ".join(constants[:-1]),
            ", ".join(tensor.short() for text in sent if (tensor := tensor_of(text, facts.hints))),
            _bytes(sent, node.type, facts.hints),
            constants[-1] if constants and group else "",
            name,
            facts.compilation.id,
            (rank,),
            _span(node, nodes, locate),
        )


def _bytes(sent: Sequence[str], result_type: str, hints: Hints) -> int | None:
    """Return the larger of input and output; an output of several tensors has no type of its own."""
    tensors = [tensor_of(text, hints) for text in sent]
    total = 0
    for tensor in tensors:
        if tensor is not None:
            if tensor.bytes is None:
                return None
            total += tensor.bytes
    result = tensor_of(result_type, hints)
    return max(total, result.bytes or 0) if result is not None else total


def _span(node: GraphNode, nodes: Mapping[str, GraphNode], locate: Locate) -> Span | None:
    """Return the nearest line outside of torch, following the collective's inputs back."""
    waiting, seen = [node], {node.name}
    for _ in range(_FAR_BACK):
        if not waiting:
            break
        current = waiting.pop(0)
        if current.line is not None and "/torch/" not in current.line.file.replace("\\", "/"):
            return locate(current.line, current)
        earlier = [nodes[name] for name in current.inputs if name in nodes and name not in seen]
        seen.update(entry.name for entry in earlier)
        waiting += earlier
    return None


def _signature(row: Collective) -> tuple[str, ...]:
    return row.op, row.detail, row.tensor


def _mismatch(
    position: int, first: tuple[int, Collective | None], other: tuple[int, Collective | None]
) -> CollectiveMismatch:
    (rank, row), (other_rank, counterpart) = first, other
    return CollectiveMismatch(
        position,
        rank,
        other_rank,
        _text(row),
        _text(counterpart),
        row.span if row is not None else None,
        counterpart.span if counterpart is not None else None,
    )


def _text(row: Collective | None) -> str:
    if row is None:
        return "no further collective"
    return f"{row.op} {row.tensor}{f' ({row.detail})' if row.detail else ''}"
