"""Which nodes Inductor's scheduler asked about and did not fuse, with its own words.

Invariant: a pair is told once, by the question about the largest parts of its two kernels, the last of these:
what was asked of single nodes before they grew is no answer about the kernels that they are in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aotlens.codegen.gpu.records import Access, KernelCall, NotFused

Operation = tuple[int, str]
"""The graph (its scheduler's identity) and Inductor's name of an operation."""


@dataclass(slots=True)
class Refusals:
    """Mutable while Inductor works."""

    _asked: dict[tuple[frozenset[Operation], frozenset[Operation]], str] = field(default_factory=dict)
    _calls: dict[Operation, int] = field(default_factory=dict)
    _words: list[str] = field(default_factory=list)
    """What was said within the questions that are being asked, the innermost last."""

    def begin(self) -> None:
        self._words.append("")

    def say(self, words: str) -> None:
        """A reason; the last one that is given within a question counts."""
        if self._words:
            self._words[-1] = words

    def end(self, nodes: tuple[Any, Any], fused: bool) -> None:
        words = self._words.pop()
        if self._words and not fused:
            self._words[-1] = words
        if not fused:
            self.note(nodes, words)

    def note(self, nodes: tuple[Any, Any], words: str) -> None:
        first, second = (
            frozenset((id(node.scheduler), name) for name in node.get_operation_names()) for node in nodes
        )
        self._asked.pop((first, second), None)  # the last answer stands last
        self._asked[first, second] = words

    def note_call(self, graph: int, operations: list[str], call: int) -> None:
        """The operations that a call runs."""
        self._calls.update({(graph, name): call for name in operations})

    def between(self, calls: list[KernelCall]) -> Iterator[NotFused]:
        """Every pair of calls that touch one value, in call order."""
        words = self._by_call()
        sizes: dict[str, int] = {}
        for access in (access for call in calls for access in call.accesses):
            sizes[access.buffer] = max(sizes.get(access.buffer, 0), access.bytes)
        for (first, second), buffers in sorted(_sharing(calls).items()):
            largest = sorted(buffers, key=lambda buffer: -buffers[buffer].bytes)
            before = {access.buffer: access for access in calls[first].accesses}
            produced = [buffer for buffer in largest if before[buffer].written]
            both = [name for name in largest if before[name].bytes + buffers[name].bytes > sizes[name]]
            why = words.get((first, second), "")
            if produced or (both and why):  # two that read different parts of a value share nothing
                yield NotFused(first, second, tuple(produced or both), bool(produced), why)

    def _by_call(self) -> dict[tuple[int, int], str]:
        best: dict[tuple[int, int], tuple[tuple[int, bool], str]] = {}
        for (one, other), words in self._asked.items():
            calls = [{self._calls.get(operation) for operation in side} for side in (one, other)]
            if any(len(found) != 1 or None in found for found in calls):
                continue  # a part of it went elsewhere, or never became a call
            asked = [next(iter(found)) or 0 for found in calls]
            pair = min(asked), max(asked)
            rank = len(one) + len(other), asked[0] < asked[1]  # the other way round it only says so
            if pair[0] != pair[1] and rank >= best.get(pair, ((0, False), ""))[0]:
                best[pair] = rank, words
        return {pair: words for pair, (_, words) in best.items()}


def _sharing(calls: list[KernelCall]) -> dict[tuple[int, int], dict[str, Access]]:
    """The values that two calls touch: written by the first and read by the second, or read by both."""
    found: dict[tuple[int, int], dict[str, Access]] = {}
    touching: dict[str, list[tuple[int, Access]]] = {}
    for at, call in enumerate(calls):
        for access in call.accesses:
            before = touching.setdefault(access.buffer, [])
            if not access.written:
                for earlier, _ in before:
                    if earlier != at:
                        found.setdefault((earlier, at), {})[access.buffer] = access
            before.append((at, access))
    return found
