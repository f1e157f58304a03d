"""The targets of a script, grouped by the user's function; one capture of a function in two reports.

Dynamo makes several graphs of a function that it cannot capture whole, and compiles each again for arguments
of another kind. Invariant: standard library only, and every target is in exactly one function.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aotlens.model.report import AFTER, Span, Target
from aotlens.view.quantities import counted, signature

__all__ = ["Function", "Graph", "by_function", "capture_name", "same_capture"]


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph of a function, with each of its compilations."""

    compilations: tuple[Target, ...]

    @property
    def differing(self) -> tuple[str, ...]:
        """Return the arguments, parameters and buffers that differ between the compilations."""
        kinds: dict[str, set[str]] = {}
        for target in self.compilations:
            for row in target.inputs:
                shown = row.tensor.short() if row.tensor is not None else row.reason
                kinds.setdefault(row.name, set()).add(f"{shown}{row.requires_grad}")
        return tuple(name for name, shown_kinds in kinds.items() if len(shown_kinds) > 1)


@dataclass(frozen=True, slots=True)
class Function:
    """A function or module of the user's, with all of its graphs."""

    name: str
    span: Span | None
    graphs: tuple[Graph, ...]

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(target for graph in self.graphs for target in graph.compilations)

    @property
    def recompilations(self) -> int:
        return sum(len(graph.compilations) - 1 for graph in self.graphs)

    @property
    def elapsed_ms(self) -> float:
        """Return the compile time of all of its graphs."""
        return sum(sum(target.timings_ms.values()) for target in self.targets)

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(target.mode for target in self.targets))

    @property
    def counts(self) -> str:
        """`3 graphs × 4 compilations`; `2 graphs, 5 compilations` where they differ; `1 graph`."""
        each = {len(graph.compilations) for graph in self.graphs}
        graphs, compilations = counted(len(self.graphs), "graph"), len(self.targets)
        if each == {1}:
            return graphs
        if len(each) == 1:
            return f"{graphs} × {counted(min(each), 'compilation')}"
        return f"{graphs}, {counted(compilations, 'compilation')}"


def by_function(targets: Sequence[Target]) -> tuple[Function, ...]:
    """Return the functions in the order of their first compilation."""
    starts = _definitions(targets)
    functions: dict[tuple[str, str, int], list[Target]] = {}
    for target in targets:
        functions.setdefault(_function_key(target, starts), []).append(target)
    return tuple(_function(group) for group in functions.values())


def _function(targets: list[Target]) -> Function:
    """Group the targets of one function by graph: Dynamo compiles each graph of it under one frame number.

    A target without one was compiled by the direct frontend, or its log does not number it. It counts as
    another compilation of the first graph with its name.
    """
    whole = next((target for target in targets if not target.is_resumed), targets[0])
    graphs: dict[object, list[Target]] = {}
    frames = {target.qualname: target.graph.frame for target in reversed(targets) if target.graph}
    for target in targets:
        frame = target.graph.frame if target.graph else frames.get(target.qualname, target.qualname)
        graphs.setdefault(frame, []).append(target)
    name = whole.name.partition(AFTER)[0]
    return Function(name, whole.span, tuple(Graph(tuple(group)) for group in graphs.values()))


def _definitions(targets: Iterable[Target]) -> dict[tuple[str, str], list[int]]:
    """Return the first lines of the functions of one name in one file."""
    lines: dict[tuple[str, str], set[int]] = {}
    for target in targets:
        if target.span is not None and not target.is_resumed:
            lines.setdefault((target.function, target.span.file), set()).add(target.span.line)
    return {key: sorted(numbers) for key, numbers in lines.items()}


def _function_key(target: Target, starts: dict[tuple[str, str], list[int]]) -> tuple[str, str, int]:
    """Return a key that the graphs of one function share; the rest after a graph break has the definition
    above it."""
    if target.span is None:
        return target.function, "", 0
    lines = starts.get((target.function, target.span.file), [])
    above = bisect_right(lines, target.span.line)
    return target.function, target.span.file, lines[above - 1] if above else 0


def capture_name(target: Target) -> str:
    """Return the qualified name, and the tensors that the user passes: `Block.forward(f32[8, 16])`."""
    return f"{target.qualname}{signature(target)}"


def same_capture(targets: Iterable[Target], shown: Target) -> Target | None:
    """Return the same capture in another trace of the same script; None when it has none."""
    return next((target for target in targets if capture_name(target) == capture_name(shown)), None)
