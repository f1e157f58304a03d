"""Compare what the ranks of one run compiled.

Invariant: two graphs are equal if they differ only in a GPU's number and a process group's name.  A text is
parsed only if its checksum differs from the other ranks'.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import md5
from itertools import zip_longest
from statistics import median

from aotlens.model.ranks import GraphDifference, PhaseImbalance, RankCompilation, Ranks
from aotlens.model.report import Span
from aotlens.trace.collectives import GROUP, collectives_of, mismatches_of
from aotlens.trace.compiled_functions import compiled_function
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.graphs.records import Graph, GraphNode
from aotlens.trace.logs.reader import Compilation, Process, Trace
from aotlens.trace.phases import seconds_by_phase
from aotlens.trace.source.lines import Locate

__all__ = ["GRAPHS", "identity", "ranks_of"]

GRAPHS = {
    "dynamo_output_graph": "captured",
    "aot_joint_graph": "joint",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
}
"""The stages by the kind of their record."""
MAX_COMPILATIONS = 2_000
_DEVICE = re.compile(r"\b(cuda|xpu|hpu|mps):\d+")

Key = tuple[str, int]
"""Compile id, and the number of Dynamo resets before it."""


def ranks_of(trace: Trace, locate: Locate) -> Ranks | None:
    """Return the comparison; None for a log of fewer than two ranks."""
    processes = _by_rank(trace.processes)
    if len(processes) < 2:
        return None
    compiled = {rank: _compilations(process) for rank, process in processes.items()}
    known: dict[str, str] = {}
    groups = {key: _groups(key, compiled, known) for key in _keys(compiled.values())}
    collectives = {rank: collectives_of(facts.values(), rank, locate) for rank, facts in compiled.items()}
    return Ranks(
        tuple(processes),
        tuple(row for key, same in groups.items() for row in _rows(key, same, compiled, locate)),
        tuple(row for key, same in groups.items() for row in _differences(key, same, compiled, locate)),
        tuple(_phases(compiled)),
        *mismatches_of(collectives),
    )


def identity(compilation: Compilation, known: dict[str, str]) -> tuple[str, ...]:
    """Return what equal compilations of several ranks have in common.

    `known` maps torch's checksums to those without rank-specific text: equal texts are read once.
    """
    trace = compilation.process.trace
    parts = []
    for record in compilation.records(*GRAPHS):
        digest = trace.digest(record)
        if digest not in known:
            text = _unified(trace.text(record)).encode()
            known[digest] = md5(text, usedforsecurity=False).hexdigest()
        parts.append(f"{record.kind} {known[digest]}")
    return tuple(parts)


def _unified(text: str) -> str:
    """Return the text without rank-specific parts."""
    return GROUP.sub(r"\1'GROUP')", _DEVICE.sub(r"\1", text))


def _by_rank(processes: Iterable[Process]) -> dict[int, Process]:
    """Return one process per rank: the last if a folder holds the logs of several runs."""
    ranked = [process for process in processes if process.rank is not None and process.compilations]
    by_rank = {process.rank: process for process in ranked if process.rank is not None}
    return dict(sorted(by_rank.items()))


def _compilations(process: Process) -> dict[Key, CompilationFacts]:
    first = process.compilations[:MAX_COMPILATIONS]
    return {(compilation.id, compilation.number): CompilationFacts(compilation) for compilation in first}


def _keys(compiled: Iterable[Mapping[Key, CompilationFacts]]) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(key for facts in compiled for key in facts))


def _groups(
    key: Key, compiled: Mapping[int, Mapping[Key, CompilationFacts]], known: dict[str, str]
) -> tuple[tuple[int, ...], ...]:
    """Return the ranks grouped by what they compiled under an id; none at all is a group too."""
    digests = {
        rank: identity(facts[key].compilation, known) if key in facts else None
        for rank, facts in compiled.items()
    }
    same: dict[tuple[str, ...] | None, list[int]] = defaultdict(list)
    for rank, digest in digests.items():
        same[digest].append(rank)
    return tuple(tuple(ranks) for ranks in same.values())


def _rows(
    key: Key,
    groups: Sequence[tuple[int, ...]],
    compiled: Mapping[int, Mapping[Key, CompilationFacts]],
    locate: Locate,
) -> Iterator[RankCompilation]:
    for ranks in groups:
        facts = compiled[ranks[0]].get(key)
        if facts is not None:
            name, span = _function(facts, locate)
            yield RankCompilation(key[0], name, span, ranks)


def _differences(
    key: Key,
    groups: Sequence[tuple[int, ...]],
    compiled: Mapping[int, Mapping[Key, CompilationFacts]],
    locate: Locate,
) -> Iterator[GraphDifference]:
    """Yield the differences between the first group and each other one."""
    present = [ranks for ranks in groups if compiled[ranks[0]].get(key) is not None]
    if len(groups) < 2 or not present:
        return
    base = compiled[present[0][0]][key]
    function, span = _function(base, locate)
    for ranks in groups:
        if ranks == present[0]:
            continue
        other = compiled[ranks[0]].get(key)
        graph, nodes = ("captured", (None, None)) if other is None else _first_difference(base, other)
        texts = [
            ("no graph" if facts is None else _node_text(node))
            for facts, node in zip((base, other), nodes, strict=True)
        ]
        spans = [_span(node, locate) for node in nodes]
        if other is None:
            texts[0], spans[0] = "a graph", span
        yield GraphDifference(
            key[0], function, graph, present[0], ranks, texts[0], texts[1], spans[0], spans[1]
        )


def _function(facts: CompilationFacts, locate: Locate) -> tuple[str, Span]:
    """Return the name of the compiled function, and its definition."""
    function = compiled_function(facts, locate)
    return function.qualname, locate(function.first_line, None)


def _first_difference(
    base: CompilationFacts, other: CompilationFacts
) -> tuple[str, tuple[GraphNode | None, GraphNode | None]]:
    """Return the first graph that differs, with the first node that differs in each.

    Without nodes if only one rank has the graph, or if only arguments or results differ.
    """
    for kind, name in GRAPHS.items():
        graph, other_graph = base.graph(kind), other.graph(kind)
        if graph is None or other_graph is None:
            if graph is not other_graph:
                return name, (None, None)
            continue
        for node, other_node in zip_longest(graph.nodes, other_graph.nodes):
            if _shape(node, graph) != _shape(other_node, other_graph):
                return name, (node, other_node)
    return "captured", (None, None)


def _shape(node: GraphNode | None, graph: Graph) -> tuple[str, ...] | None:
    """Return what must be equal, including names, because torch names nodes after operators in order."""
    return (
        None if node is None else (node.target, *node.inputs, _unified(node.expression), _unified(node.type))
    )


def _node_text(node: GraphNode | None) -> str:
    if node is None:
        return "nothing more"
    sizes, strides, _ = node.type.partition("][")
    return f"`{node.name}` = {node.target} {sizes}{']' if strides else ''}".rstrip()


def _span(node: GraphNode | None, locate: Locate) -> Span | None:
    return None if node is None or node.line is None else locate(node.line, node)


def _phases(compiled: Mapping[int, Mapping[Key, CompilationFacts]]) -> Iterator[PhaseImbalance]:
    seconds: dict[str, dict[int, float]] = defaultdict(dict)
    for rank, facts in compiled.items():
        for compilation in facts.values():
            for phase, spent in seconds_by_phase(compilation).items():
                seconds[phase][rank] = seconds[phase].get(rank, 0.0) + spent
    for phase, by_rank in sorted(seconds.items(), key=lambda entry: -max(entry[1].values())):
        slowest = max(by_rank, key=lambda rank: by_rank[rank])
        middle = median(by_rank.get(rank, 0.0) for rank in compiled)
        yield PhaseImbalance(phase, slowest, by_rank[slowest], middle)
