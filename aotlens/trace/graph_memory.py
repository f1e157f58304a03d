"""Compute the memory of graphs that run operator by operator, if no generated code was logged.

Invariant: each value has its own memory from its node to its last reader; a view has none, and lives as long
as its base.  Working memory of kernels is not in a log.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aotlens.model.partition import LiveKind
from aotlens.model.report import LiveValue, Memory, Partition
from aotlens.model.source import Phase
from aotlens.trace.facts import GraphSet
from aotlens.trace.graphs.records import Graph, GraphNode
from aotlens.trace.graphs.tensor_text import Hints, tensor_of
from aotlens.trace.partition import base_of
from aotlens.trace.source.lines import Locate, span_of

__all__ = ["graph_memory"]


@dataclass(frozen=True, slots=True)
class _Played:
    """The simulated run of one graph."""

    rows: tuple[tuple[str, int], ...]
    peak: int
    peak_node: str
    live: tuple[tuple[str, int], ...]
    left: int
    """Bytes that outlive it."""
    last: Mapping[str, str]
    """By value: the node after which its memory is freed; values that outlive the graph have none."""


def graph_memory(graphs: GraphSet, partition: Partition | None, locate: Locate) -> Memory | None:
    """Return the curve over forward and backward; None if a size has no value, or there is no graph."""
    first, hints = graphs.first, graphs.facts.hints
    if first is None:
        return None
    ahead = _played(first, hints, {})
    saved = {value.node: value.bytes for value in partition.saved if value.bytes} if partition else {}
    behind = _played(graphs.backward, hints, saved) if graphs.backward is not None else None
    if ahead is None or (graphs.backward is not None and behind is None):
        return None
    results = max(0, ahead.left - sum(saved.values()))
    phase: Phase = "forward" if graphs.forward is not None else "inference"
    played, peak, graph, rows = ahead, ahead.peak, first, list(ahead.rows)
    if behind is not None and graphs.backward is not None:
        rows += [(name, results + size) for name, size in behind.rows]
        if results + behind.peak > peak:
            phase, played, peak, graph = "backward", behind, results + behind.peak, graphs.backward
    nodes = {node.name: node for node in (*first.nodes, *graph.nodes)}
    live = tuple(_live(played, nodes, phase, saved, locate))
    if phase == "backward" and results:
        live = (LiveValue("results of the forward", results, None, "result"), *live)
    at_peak = nodes.get(played.peak_node)
    return Memory(
        peak,
        tuple(rows),
        live,
        peak_node=played.peak_node,
        peak_phase=phase,
        peak_span=next(iter(span_of(locate, at_peak)), None) if at_peak else None,
        forward_nodes=len(ahead.rows),
        held_bytes=ahead.left,
    )


def _played(graph: Graph, hints: Hints, saved_bytes: Mapping[str, int]) -> _Played | None:
    nodes = {node.name: node for node in graph.nodes}
    results = {base_of(result.name, nodes) for result in graph.results}
    last = {name: node for name, node in _last_readers(graph, nodes).items() if name not in results}
    ending: dict[str, list[str]] = {}
    for name, node_name in last.items():
        ending.setdefault(node_name, []).append(name)
    live = dict(saved_bytes)
    rows: list[tuple[str, int]] = []
    peak, peak_node, at_peak = 0, "", tuple(live.items())
    for node in graph.nodes:
        if base_of(node.name, nodes) == node.name and node.type and not node.type.startswith("Sym("):
            tensor = tensor_of(node.type, hints)
            if tensor is None or tensor.bytes is None:
                return None
            if not node.target.startswith("aten.copy_"):
                live[node.name] = tensor.bytes
        total = sum(live.values())
        rows.append((node.name, total))
        if total > peak:
            peak, peak_node, at_peak = total, node.name, tuple(live.items())
        for name in ending.get(node.name, ()):
            live.pop(name, None)
    return _Played(tuple(rows), peak, peak_node, at_peak, sum(live.values()), last)


def _last_readers(graph: Graph, nodes: Mapping[str, GraphNode]) -> dict[str, str]:
    """Return, for each value with its own memory, the last node that reads it or a view of it."""
    last = {node.name: node.name for node in graph.nodes}  # unused values are freed at once
    return last | {base_of(name, nodes): node.name for node in graph.nodes for name in node.inputs}


def _live(
    played: _Played, nodes: Mapping[str, GraphNode], phase: Phase, saved: Mapping[str, int], locate: Locate
) -> Iterator[LiveValue]:
    for name, size in sorted(played.live, key=lambda entry: -entry[1])[:200]:
        node, end = nodes.get(name), played.last.get(name)
        own: LiveKind = "gradient" if phase == "backward" else "result"
        kind = "saved" if name in saved and phase == "backward" else "temporary" if end else own
        yield LiveValue(
            name,
            size,
            next(iter(span_of(locate, node)), None) if node else None,
            kind,
            made_in="forward" if kind == "saved" else phase,
            last=end,
            last_in=phase if end else None,
        )
