"""The facts of a report about one file, ordered by position.

Invariant: built once per trace, away from the server's loop, so that a hover is a lookup. Lines and columns
are the report's: 1-based lines of the traced text, UTF-8 byte columns.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from aotlens.diagnostics.ignores import covers, parse_ignores
from aotlens.model.report import (
    Diagnostic,
    Input,
    Kernel,
    Output,
    RecomputedValue,
    Report,
    SavedValue,
    SideEffect,
    Site,
    Span,
    StageNode,
    Target,
    Variable,
    WrapperStep,
)
from aotlens.view.quantities import applied_steps
from lsp_server.text.parsing import parse

TALLEST_SPAN = 200
"""A span with more lines is found from its first line only."""

Resolve = Callable[[str], str]
"""From the file name in a span to the path that documents are known by."""


Readers = dict[str, list[str]]
"""For each forward node the nodes that read it, by name."""


@dataclass(slots=True)
class Spot:
    """Everything that one target has at one span; filled while the index is built, then only read but for its
    text."""

    target: Target
    span: Span
    readers: Readers = field(default_factory=dict)
    """Of all nodes of the target's forward, shared by its spots."""
    forward: list[StageNode] = field(default_factory=list)
    backward: list[StageNode] = field(default_factory=list)
    saved: list[SavedValue] = field(default_factory=list)
    recomputed: list[RecomputedValue] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    inputs: list[tuple[Input, Site]] = field(default_factory=list)
    """The inputs that this expression mutates."""
    outputs: list[Output] = field(default_factory=list)
    """The outputs that this expression returns."""
    side_effects: list[SideEffect] = field(default_factory=list)
    """The side effects of this expression on objects outside of the function."""
    steps: list[WrapperStep] = field(default_factory=list)
    """The wrapper steps that this expression causes."""
    text: str | None = None
    """The text of a hover over it, once that was asked for."""

    @property
    def results(self) -> list[StageNode]:
        """Return the values of the expression: the nodes of its first run that the rest of the forward reads.

        Empty where nothing reads it, for example where it is returned or only writes.
        """
        inside = {node.name for node in self.forward}
        return [
            node
            for node in _first_run(self.forward)
            if any(reader not in inside for reader in self.readers.get(node.name, ()))
        ]


def _first_run(nodes: Sequence[StageNode]) -> Sequence[StageNode]:
    """Return the nodes of the first of several runs of one expression, in a loop or in each layer.

    Runs of the same operators from the same lines follow each other; where the layers differ, the first layer
    is the first run.
    """
    keys = [(node.target, node.spans[:1]) for node in nodes]
    for length in range(1, len(keys) // 2 + 1):
        if len(keys) % length == 0 and keys[length:] == keys[:-length]:
            return nodes[:length]
    layers = [node.layer for node in nodes if node.layer is not None]
    return [node for node in nodes if node.layer in (None, layers[0])] if layers else nodes


@dataclass(frozen=True, slots=True)
class Signature:
    """The location of a target's definition in the traced text."""

    name: Span
    """The name after `def` or `class`."""
    arguments: dict[str, Span]
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class FileIndex:
    """One report, seen from one file."""

    file: str
    targets: tuple[Target, ...]
    """The targets that are defined in this file."""
    spots: tuple[Spot, ...]
    by_line: dict[int, tuple[Spot, ...]]
    signatures: dict[str, Signature]
    """By the target's qualified name, for the targets above."""
    diagnostics: tuple[tuple[Target | None, Diagnostic], ...]
    """Each with its target; None for a finding about the script."""

    def spots_at(self, line: int, col: int) -> tuple[Spot, ...]:
        """Return the spots at a position, innermost first."""
        around = (spot for spot in self.by_line.get(line, ()) if contains(spot.span, line, col))
        return tuple(sorted(around, key=lambda spot: spot.span.extent))

    def enclosing(self, line: int) -> tuple[Target, ...]:
        """Return the targets whose definition covers a line."""
        return tuple(
            target
            for target in self.targets
            if (signature := self.signatures.get(target.qualname))
            and signature.first_line <= line <= signature.last_line
        )


def contains(span: Span, line: int, col: int) -> bool:
    """Return True if the position is in the span or at its end, since a cursor may be behind the last
    character."""
    return (span.line, span.col) <= (line, col) <= (span.end_line, span.end_col)


def saved_bytes_inside(spot: Spot) -> int:
    """Return the saved bytes of an expression's values, including those of the functions that it calls."""
    partition = spot.target.partition
    if partition is None or not spot.forward:
        return 0
    inside = {node.name for node in spot.forward}
    return sum(value.bytes for value in partition.saved if value.node in inside)


def files_of(report: Report, resolve: Resolve) -> set[str]:
    """Return every file that the report has a span in."""
    spans = [target.span for target in report.targets if target.span]
    spans += [spot.span for target in report.targets for spot in _spots(target)]
    spans += [finding.span for _, finding in _findings(report) if finding.span]
    if report.fit is not None:
        spans += [row.span for row in report.fit.by_line if row.span]
        spans += [report.fit.at.span] if report.fit.at.span else []
    return {resolve(name) for name in {span.file for span in spans}}


def build(report: Report, file: str, lines: Sequence[str], resolve: Resolve) -> FileIndex:
    """Return the index of one file, whose traced text is `lines`."""
    targets = tuple(target for target in report.targets if target.span and resolve(target.span.file) == file)
    spots = tuple(
        spot for target in report.targets for spot in _spots(target) if resolve(spot.span.file) == file
    )
    ignores = parse_ignores("\n".join(lines), file)
    by_line: dict[int, list[Spot]] = {}
    for spot in spots:
        last = min(spot.span.end_line, spot.span.line + TALLEST_SPAN)
        for line in range(spot.span.line, last + 1):
            by_line.setdefault(line, []).append(spot)
    return FileIndex(
        file=file,
        targets=targets,
        spots=spots,
        by_line={line: tuple(line_spots) for line, line_spots in by_line.items()},
        signatures=_signatures(targets, lines),
        diagnostics=tuple(
            (target, finding)
            for target, finding in _findings(report)
            if finding.span
            and resolve(finding.span.file) == file
            and not any(covers(ignore, finding) for ignore in ignores)
        ),
    )


def _findings(report: Report) -> Iterator[tuple[Target | None, Diagnostic]]:
    for finding in report.diagnostics:
        yield None, finding
    for target in report.targets:
        for finding in target.diagnostics:
            yield target, finding


def _spots(target: Target) -> Iterable[Spot]:
    spots: dict[Span, Spot] = {}
    readers = _readers(target)
    for span, kind, fact in chain(_node_facts(target), _memory_facts(target), _wrapper_facts(target)):
        spot = spots.get(span)
        if spot is None:
            spot = spots[span] = Spot(target, span, readers)
        getattr(spot, kind).append(fact)
    return spots.values()


def _readers(target: Target) -> Readers:
    readers: Readers = {}
    for stage in target.stages:
        for node in stage.nodes if stage.name in ("forward", "inference") else ():
            for name in node.inputs if node.op == "call_function" else ():
                readers.setdefault(name, []).append(node.name)
    return readers


Fact = tuple[Span, str, object]
"""A span, the field of `Spot` that the fact belongs to, and the fact."""


def _node_facts(target: Target) -> Iterator[Fact]:
    fields = {"forward": "forward", "inference": "forward", "backward": "backward"}
    for stage in target.stages:
        for node in stage.nodes if stage.name in fields else ():
            if node.op == "call_function":
                yield from ((span, fields[stage.name], node) for span in dict.fromkeys(node.spans))
    for kernel in target.kernels:
        yield from ((span, "kernels", kernel) for span in dict.fromkeys(kernel.spans))


def _memory_facts(target: Target) -> Iterator[Fact]:
    for variable in target.variables:
        yield variable.span, "variables", variable
    if target.partition is None:
        return
    for saved in target.partition.saved:
        if saved.span:
            yield saved.span, "saved", saved
    for recomputed in target.partition.recomputed:
        if recomputed.span:
            yield recomputed.span, "recomputed", recomputed


def _wrapper_facts(target: Target) -> Iterator[Fact]:
    for row in target.inputs:
        yield from ((site.span, "inputs", (row, site)) for site in row.sites)
    for output in target.outputs:
        yield from ((site.span, "outputs", output) for site in output.sites)
    for effect in target.side_effects:
        yield from ((site.span, "side_effects", effect) for site in effect.sites)
    for step in applied_steps(target):
        yield from ((site.span, "steps", step) for site in step.sites)


def _signatures(targets: Sequence[Target], lines: Sequence[str]) -> dict[str, Signature]:
    if not targets:
        return {}
    tree = parse("\n".join(lines))
    if tree is None:
        return {}  # the text on disk changed since it was traced; marks on arguments are left out
    definitions = dict(_definitions(tree))
    signatures = {}
    for target in targets:
        node = definitions.get(target.qualname)
        if node is not None and target.span is not None:
            signatures[target.qualname] = _signature(node, target.span.file, lines)
    return signatures


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            name = f"{prefix}{child.name}"
            yield name, child
            inner = f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>."
            yield from _definitions(child, inner)
        elif isinstance(child, ast.stmt):
            yield from _definitions(child, prefix)


def _signature(node: Definition, file: str, lines: Sequence[str]) -> Signature:
    text = lines[node.lineno - 1]
    col = text.encode().find(node.name.encode(), node.col_offset + len("def "))
    name = Span(file, node.lineno, col, node.lineno, col + len(node.name.encode()))
    function = node if not isinstance(node, ast.ClassDef) else _forward(node)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return Signature(name, _arguments(function, file), first, node.end_lineno or node.lineno)


def _forward(node: ast.ClassDef) -> ast.FunctionDef | None:
    return next(
        (
            statement
            for statement in node.body
            if isinstance(statement, ast.FunctionDef) and statement.name == "forward"
        ),
        None,
    )


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | None, file: str) -> dict[str, Span]:
    if node is None:
        return {}
    args = node.args
    every = [*args.posonlyargs, *args.args, *filter(None, [args.vararg]), *args.kwonlyargs]
    return {
        argument.arg: Span(
            file,
            argument.lineno,
            argument.col_offset,
            argument.lineno,
            argument.col_offset + len(argument.arg.encode()),
        )
        for argument in every
    }
