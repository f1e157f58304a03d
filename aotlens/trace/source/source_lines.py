"""Locate the lines of one compilation in the open workspace, with the certainty of each.

Invariant: a span never covers another text than the logged one; a line that is not found keeps its logged
path and number, and `states` says so.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aotlens.model.report import Span
from aotlens.model.target_facts import Known, Origin
from aotlens.trace.facts import GraphSet
from aotlens.trace.graphs.records import Graph, GraphNode, Line
from aotlens.trace.source.columns import base_name, columns_of, forward_name
from aotlens.trace.source.relocation import LineState, Located, current_lines, relocate
from aotlens.trace.source.workspace import Workspace, definition_text
from aotlens.view.quantities import counted

__all__ = ["SourceLines", "Sources", "line_origins"]

_NodeKey = tuple[str, str]
"""Name and target: Dynamo's graph and AOT graphs use the same names for different nodes."""
_LAYER = re.compile(r"(?:^|_)modules_(\w+?)_(?:parameters|buffers)_\w+$")
_POSITION = re.compile(r"AOTInput\(idx=(\d{1,9})\)$")


class Sources:
    """Locates logged lines in a workspace, one by one or with the graphs of a target.

    The lines of each target's graphs have texts, which help to find lines without: definitions of `forward`
    in a file that has several.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._without_target = SourceLines(workspace, None, (), is_cache_hit=False)

    def __call__(self, line: Line, node: GraphNode | None = None) -> Span:
        return self._without_target(line, node)

    def for_target(self, graphs: GraphSet) -> "SourceLines":
        """Return the same for the lines of a target, which help to locate each other."""
        others = (graphs.joint, graphs.forward, graphs.inference, graphs.backward)
        present = tuple(graph for graph in others if graph is not None)
        is_cache_hit = bool(graphs.facts.records("aotautograd_cache_hit"))
        lines = SourceLines(self.workspace, graphs.captured, present, is_cache_hit=is_cache_hit)
        self._without_target.learn(lines)
        return lines


class SourceLines:
    """Returns the span here for a logged line and its node."""

    def __init__(
        self, workspace: Workspace, captured: Graph | None, others: Sequence[Graph], *, is_cache_hit: bool
    ) -> None:
        self._captured = _lines(captured) if captured is not None else ()
        lines = dict.fromkeys((*self._captured, *(line for graph in others for line in _lines(graph))))
        self._current = (
            current_lines(lines, self._captured) if is_cache_hit else {line: line for line in lines}
        )
        self._files: dict[str, str] = {}
        self._located: dict[Line, Located] = {}
        self._texts: dict[str, list[str]] = {}
        self._workspace = workspace
        self._locate_all(line for line in self._current.values() if line is not None)
        graphs = (*others, captured) if captured is not None else others
        self._sources = dict(pair for graph in graphs for pair in _sources(graph))
        self._written = _written(captured, others)
        self._layers = _layers(captured, others)

    def __call__(self, line: Line, node: GraphNode | None = None) -> Span:
        current = self._current.get(line, line) or line
        if current not in self._located:
            self._locate_all((current,))
        location, file = self._located[current], self._files.get(current.file, current.file)
        number = location.line
        text = self._text(file, number) if location.state in ("same", "moved", "unchecked") else ""
        start = len(text.encode()) - len(text.lstrip().encode())
        end = max(start, len(text.rstrip().encode()))
        if node is not None and text and (columns := self._columns(text, line, node)) is not None:
            start, end = columns
        return Span(file, number, start, number, end)

    def learn(self, other: "SourceLines") -> None:
        """Add the lines that another one is sure of, and look again for those that were unchecked."""
        self._files |= other._files
        self._texts |= other._texts
        known = {line: location for line, location in self._located.items() if location.state != "unchecked"}
        sure = {
            line: location for line, location in other._located.items() if location.state in ("same", "moved")
        }
        self._located = known | sure

    @property
    def states(self) -> dict[Line, LineState]:
        """Return how each line was found."""
        current = {line: self._current.get(line) for line in self._current}
        return {line: "changed" if now is None else self._located[now].state for line, now in current.items()}

    @property
    def stale(self) -> tuple[Line, ...]:
        """Return lines of the file that first filled the cache whose current line is unknown."""
        return tuple(line for line, current in self._current.items() if current is None)

    def _columns(self, text: str, line: Line, node: GraphNode) -> tuple[int, int] | None:
        if node.target.startswith("getitem[") and (source := self._source_of(line, node)) is not None:
            return self._columns(text, line, source)
        name = forward_name(node.target)
        layer = self._layers.get((node.name, node.target), "")
        is_written = not node.target.startswith("aten.") or (line, name) in self._written
        columns = columns_of(text, node.target, layer, is_written=is_written)
        return None if columns is None else (columns.start, columns.end)

    def _source_of(self, line: Line, node: GraphNode) -> GraphNode | None:
        """Return the node that computes the tuple of a `getitem`, if both are on the same line."""
        source = self._sources.get(node)
        return source if source is not None and source.line == line else None

    def _locate_all(self, lines: Iterable[Line]) -> None:
        by_file: dict[str, list[Line]] = defaultdict(list)
        for line in lines:
            by_file[line.file].append(line)
        for file, of_file in by_file.items():
            local = self._files.get(file)
            codes = {line.line: line.code or definition_text(line.function) for line in of_file}
            path = Path(local) if local else self._workspace.find(file, codes)
            if path is None:
                self._located.update((line, Located(line.line, "missing")) for line in of_file)
                continue
            self._files[file] = str(path)
            text = path.read_text("utf-8", "replace")
            self._texts[str(path)] = text.splitlines()
            known = [line for line in self._located if line.file == file]  # they anchor lines without a text
            self._located.update(relocate(text, (*known, *of_file)))

    def _text(self, file: str, number: int) -> str:
        lines = self._texts.get(file, [])
        return lines[number - 1] if 1 <= number <= len(lines) else ""


_STATES: dict[LineState, tuple[Known, str]] = {
    "moved": ("derived", "found again by their text, as the file has changed"),
    "changed": ("unknown", "the file here has other text there: it has changed"),
    "missing": ("unknown", "their file is not in the open workspace; --map OLD=NEW says where it is"),
}


def line_origins(lines: SourceLines) -> Iterator[Origin]:
    """Yield how the lines of a target were found here, except those that are unchanged."""
    states = Counter(state for line, state in lines.states.items() if line not in lines.stale)
    for state, (known, source) in _STATES.items():
        if states[state]:
            yield Origin(f"{counted(states[state], 'line')} of {len(lines.states)}", known, source)
    if lines.stale:
        why = "a cache hit carries the lines of the file that first filled the cache"
        yield Origin(f"{counted(len(lines.stale), 'stale line')} of {len(lines.states)}", "unknown", why)


def _lines(graph: Graph) -> tuple[Line, ...]:
    own = [node.line for node in graph.nodes if node.line is not None]
    return tuple(dict.fromkeys((*own, *(line for sub in graph.subgraphs for line in _lines(sub)))))


def _sources(graph: Graph) -> Iterator[tuple[GraphNode, GraphNode]]:
    """Yield each `getitem` with the node that computes its tuple."""
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.target.startswith("getitem[") and node.inputs and node.inputs[0] in nodes:
            yield node, nodes[node.inputs[0]]


def _written(captured: Graph | None, others: Sequence[Graph]) -> frozenset[tuple[Line, str]]:
    """Return operators that a line has equally often in the AOT forward and in Dynamo's graph."""
    forward = next((graph for graph in others if _is_forward(graph)), None)
    if captured is None or forward is None:
        return frozenset()
    wanted, counts = _operators(captured), _operators(forward)
    return frozenset(key for key, count in counts.items() if wanted.get(key) == count)


def _is_forward(graph: Graph) -> bool:
    """Return True if the graph has no backward part, unlike the joint graph."""
    return not any(
        "TangentAOTInput" in argument.slot or argument.name.startswith("tangents_")
        for argument in graph.arguments
    )


def _operators(graph: Graph) -> Counter[tuple[Line, str]]:
    return Counter((node.line, base_name(node.target)) for node in graph.nodes if node.line is not None)


def _layers(captured: Graph | None, others: Sequence[Graph]) -> dict[_NodeKey, str]:
    """Return the module whose parameter a node reads."""
    if captured is None:
        return {}
    names = {argument.name: _layer(argument.name) for argument in captured.arguments}
    layers = _read_by(captured, {name.lower(): layer for name, layer in names.items()} | names)
    positions = tuple(names.values())
    for graph in others:
        of_arguments = {}
        for argument in graph.arguments:
            match = _POSITION.search(argument.slot)
            if match is not None and int(match[1]) < len(positions):
                of_arguments[argument.name] = positions[int(match[1])]
        layers |= _read_by(graph, of_arguments)
    return layers


def _read_by(graph: Graph, layers: dict[str, str]) -> dict[_NodeKey, str]:
    """Return the layers of reading nodes; views of a parameter pass its layer on."""
    layers = dict(layers)
    of_nodes: dict[_NodeKey, str] = {}
    for node in graph.nodes:
        layer = next((layers[name] for name in node.inputs if layers.get(name)), "")
        if layer:
            of_nodes[node.name, node.target] = layer
            if base_name(node.target) in ("t", "permute", "transpose", "view", "_to_copy"):
                layers[node.name] = layer
    return of_nodes


def _layer(argument: str) -> str:
    match = _LAYER.search(argument)
    return match[1].rpartition("_modules_")[2] if match else ""
