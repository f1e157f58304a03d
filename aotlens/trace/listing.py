"""Find the compilations of a log that made a graph, and choose those whose graphs are read.

Invariant: no graph is parsed here, so that the targets of a log of any size are listed at once.  A
compilation that is not chosen is listed with its name, its line and its size.
"""

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotlens.model.log import ListedTarget
from aotlens.model.report import Mode
from aotlens.trace.compiled_functions import CompiledFunction, compiled_function
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.logs.reader import Compilation, Process, Trace
from aotlens.trace.ranks import identity
from aotlens.trace.source.lines import Locate
from aotlens.trace.source.source_lines import Sources
from aotlens.trace.stages import POST_GRAD

__all__ = [
    "CHECKED",
    "COMPARED",
    "FIRST_LOOK",
    "SOME",
    "Choice",
    "Limits",
    "Summary",
    "chosen",
    "listed_targets",
    "summaries",
]

_ID = re.compile(r"(?:![\d-]+/)?[\d-]+/[\d-]+")
MAX_LISTED = 1_000
GRAPHS = (
    "dynamo_output_graph",
    "aot_joint_graph",
    "aot_forward_graph",
    "aot_backward_graph",
    "aot_inference_graph",
)
TEXTS = (*GRAPHS, *POST_GRAD, "inductor_output_code")
"""The texts that make a target large."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a log is read: the largest targets first, and always one."""

    targets: int
    text_bytes: int | None = None
    """The bytes of graphs and code after which other targets are listed only; None for no such limit."""
    reads_on: bool = False
    """True if the user can read the others when asked, so that the report is not incomplete without them."""


SOME = Limits(200)
"""For a front end that shows targets."""
FIRST_LOOK = Limits(200, 2 << 20, reads_on=True)
"""For a front end that reads on when asked: it opens within seconds."""
COMPARED = Limits(2_000, 64 << 20)
"""For a comparison, which holds all graphs: they take ten times the bytes of their text."""
CHECKED = Limits(2_000)
"""For a check, which holds one graph at a time."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One compilation in a list of targets; none of its graphs is parsed."""

    compilation: Compilation
    ranks: tuple[int, ...]
    """The ranks that compiled the same graphs; empty for a log of one process, or without ranks."""
    text_bytes: int
    """The size of its graphs and its generated code in the log."""
    variant: int = 0
    """Its number among the compilations with this id."""

    def function(self, locate: Locate) -> CompiledFunction:
        """Return the compiled function, read from the log."""
        return compiled_function(CompilationFacts(self.compilation), locate)

    def is_called(self, name: str, locate: Locate) -> bool:
        """Return True for the function's name, whole or its last part."""
        own = self.function(locate).qualname
        sets = CompilationFacts(self.compilation).sets if own == name.rpartition(".")[2] != name else ()
        if sets and isinstance(locate, Sources):  # not found in a file that has changed
            own = self.function(locate.for_target(sets[0])).qualname
        return name in (own, own.rpartition(".")[2])


@dataclass(frozen=True, slots=True)
class Choice:
    """The compilations to read, and others to list, both in the order of the log."""

    read: tuple[Summary, ...]
    listed: tuple[Summary, ...]
    """At most `MAX_LISTED`."""
    count: int
    """The compilations of both kinds, also those beyond the limit."""


def summaries(trace: Trace, compile_id: str | None = None) -> Iterator[Summary]:
    """Yield the compilations that made a graph, in the order of the log; equal ones of ranks once.

    With an id, all others are passed over unread.
    """
    variants: Counter[str] = Counter()
    for compilation, ranks in _compilations(trace, compile_id):
        variant = variants[compilation.id]
        variants[compilation.id] += 1
        yield Summary(compilation, ranks, compilation.bytes_of(*TEXTS), variant)


def _compilations(trace: Trace, compile_id: str | None) -> Iterator[tuple[Compilation, tuple[int, ...]]]:
    if len(trace.processes) == 1:
        for compilation in trace.processes[0].compilations:
            if compile_id in (None, compilation.id) and compilation.has(*GRAPHS):
                yield compilation, ()
        return
    by_identity: dict[tuple[object, ...], list[Process]] = {}
    firsts: dict[tuple[object, ...], Compilation] = {}
    known: dict[str, str] = {}
    for process in trace.processes:
        for compilation in process.compilations:
            if compile_id in (None, compilation.id) and compilation.has(*GRAPHS):
                key = (compilation.id, compilation.number, *identity(compilation, known))
                same = by_identity.setdefault(key, [])
                if process not in same:
                    same.append(process)
                    firsts.setdefault(key, compilation)
    for key, compilation in firsts.items():
        numbers = [process.rank for process in by_identity[key] if process.rank is not None]
        yield compilation, tuple(dict.fromkeys(numbers))


def chosen(trace: Trace, only: str | None, limits: Limits, locate: Locate) -> Choice:
    """Return the compilations of that name, or all, and which of them are read within the limits."""
    first: list[tuple[int, Summary]] = []
    largest: list[tuple[int, int, Summary]] = []
    count = 0
    compile_id = only if only is not None and _ID.fullmatch(only) else None  # no function has such a name
    for summary in summaries(trace, compile_id):
        if only is not None and compile_id is None and not summary.is_called(only, locate):
            continue
        if len(first) < MAX_LISTED + limits.targets:
            first.append((count, summary))
        entry = summary.text_bytes, -count, summary
        if len(largest) < limits.targets:
            heapq.heappush(largest, entry)
        else:
            heapq.heappushpop(largest, entry)
        count += 1
    read = dict(_within(sorted(largest, reverse=True), limits.text_bytes))
    listed = [summary for number, summary in first if number not in read]
    return Choice(tuple(read[number] for number in sorted(read)), tuple(listed[:MAX_LISTED]), count)


def _within(
    largest: Sequence[tuple[int, int, Summary]], text_limit: int | None
) -> Iterator[tuple[int, Summary]]:
    """Yield the position and the compilation, until the limit is reached; the heap has negative positions."""
    total = 0
    for text_bytes, number, summary in largest:
        total += text_bytes
        if text_limit is not None and total > text_limit and total > text_bytes:
            return
        yield -number, summary


def listed_targets(listed: Sequence[Summary], locate: Locate) -> Iterator[ListedTarget]:
    """Yield a row for each compilation whose graphs are not read."""
    for summary in listed:
        function = summary.function(locate)
        is_trained = summary.compilation.has("aot_joint_graph", "aot_forward_graph")
        mode: Mode = "training" if is_trained else "inference"
        span = locate(function.first_line, None) if function.file else None
        yield ListedTarget(
            function.qualname,
            summary.compilation.id,
            mode,
            span,
            summary.text_bytes,
            summary.ranks,
            summary.variant,
        )
