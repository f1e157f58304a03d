"""Pairs of kernels that Inductor's scheduler did not fuse, with its reasons, as records and report rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aotlens.codegen.gpu.cost_model.kernel_costs import SpanOf
from aotlens.codegen.gpu.records import Access, KernelCall, LoweredGraph, NotFused
from aotlens.model.kernels import UNFUSED_REASONS
from aotlens.model.report import Unfused, UnfusedCode

Operation = tuple[int, str]
"""The graph (by its scheduler's identity) and Inductor's name of an operation."""


@dataclass(slots=True)
class FusionRejections:
    """Records the scheduler's reasons; mutable while Inductor works."""

    _answers: dict[tuple[frozenset[Operation], frozenset[Operation]], str] = field(default_factory=dict)
    _calls: dict[Operation, int] = field(default_factory=dict)
    _words: list[str] = field(default_factory=list)
    """The latest reason of each fusion check that is running, the innermost last."""

    def begin(self) -> None:
        self._words.append("")

    def add_reason(self, words: str) -> None:
        """Record a reason; the last one within a check counts."""
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
        self._answers.pop((first, second), None)  # keep the latest answer last
        self._answers[first, second] = words

    def note_call(self, graph: int, operations: list[str], call: int) -> None:
        """Record the operations that a call runs."""
        self._calls.update({(graph, name): call for name in operations})

    def between(self, calls: list[KernelCall]) -> Iterator[NotFused]:
        """Yield every pair of calls that access one value, in call order."""
        words = self._by_call()
        sizes: dict[str, int] = {}
        for access in (access for call in calls for access in call.accesses):
            sizes[access.buffer] = max(sizes.get(access.buffer, 0), access.bytes)
        for (first, second), buffers in sorted(_shared_values(calls).items()):
            largest = sorted(buffers, key=lambda buffer: -buffers[buffer].bytes)
            before = {access.buffer: access for access in calls[first].accesses}
            produced = [buffer for buffer in largest if before[buffer].written]
            both = [name for name in largest if before[name].bytes + buffers[name].bytes > sizes[name]]
            why = words.get((first, second), "")
            if produced or (both and why):  # calls that read different parts of a value share nothing
                yield NotFused(first, second, tuple(produced or both), bool(produced), why)

    def _by_call(self) -> dict[tuple[int, int], str]:
        best: dict[tuple[int, int], tuple[tuple[int, bool], str]] = {}
        for (first, second), words in self._answers.items():
            calls = [{self._calls.get(operation) for operation in side} for side in (first, second)]
            if any(len(candidates) != 1 or None in candidates for candidates in calls):
                continue  # part of it is in another call, or in none
            positions = [next(iter(candidates)) or 0 for candidates in calls]
            pair = min(positions), max(positions)
            # asked in the reverse order, the scheduler only reports the order
            rank = len(first) + len(second), positions[0] < positions[1]
            if pair[0] != pair[1] and rank >= best.get(pair, ((0, False), ""))[0]:
                best[pair] = rank, words
        return {pair: words for pair, (_, words) in best.items()}


def _shared_values(calls: list[KernelCall]) -> dict[tuple[int, int], dict[str, Access]]:
    """Return the values that two calls access: written by the first and read by the second, or read by
    both."""
    shared: dict[tuple[int, int], dict[str, Access]] = {}
    touching: dict[str, list[tuple[int, Access]]] = {}
    for index, call in enumerate(calls):
        for access in call.accesses:
            before = touching.setdefault(access.buffer, [])
            if not access.written:
                for earlier, _ in before:
                    if earlier != index:
                        shared.setdefault((earlier, index), {})[access.buffer] = access
            before.append((index, access))
    return shared


WORDS: tuple[tuple[str, UnfusedCode], ...] = (
    ("no shared data", "indexing"),
    ("memory deps did not match", "indexing"),
    ("score_fusion_memory_threshold", "little"),
    ("intermediate nodes between", "order"),
    ("node1 must go before node2", "order"),
    ("will create cycle", "order"),
    ("numel/rnumel mismatch", "sizes"),
    ("nodes numel", "sizes"),
    ("tiling mismatch", "tiling"),
    ("invalid tiling", "tiling"),
    ("invalid loop order", "tiling"),
    ("Split scan", "scan"),
    ("exceeds max fusion", "limit"),
    ("fusion_prevent_too_many_reads_and_writes", "limit"),
    ("Fusion will increase peak memory", "memory"),
    ("Nodes are too far away", "memory"),
    ("prologue fusion", "template"),
    ("template", "template"),
    ("multi-output template", "template"),
    ("node1's triton kernel", "user-kernel"),
    ("node1 is extern but node2", "user-kernel"),
    ("epilogue reads from buffers", "user-kernel"),
    ("node1 and node2 uses different buf layouts", "user-kernel"),
    ("node1 is extern but not", "library"),
    ("node1 is nop", "library"),
    ("node2 is extern or nop", "library"),
    ("node1 is extern or nop", "library"),  # torch 2.11
    ("foreach", "foreach"),
    ("candidate producer", "foreach"),
    ("candidate consumer", "foreach"),
    ("register spilling", "spills"),
    ("device mismatch", "device"),
    ("fusion for buffer explicit disabled", "disabled"),
    ("grouped node", "disabled"),
)
"""The reason's code, by the beginning of torch's sentence."""


def code_of(words: str) -> UnfusedCode:
    """Return the code for torch's sentence."""
    return next((code for begin, code in WORDS if words.startswith(begin)), "other")


def unfused_rows(graph: LoweredGraph, span_of: SpanOf) -> dict[int, tuple[Unfused, ...]]:
    """Return by call index the earlier calls with which it shares values, the costliest first."""
    by_call: dict[int, list[Unfused]] = {}
    for pair in graph.not_fused:
        is_extern = any(graph.calls[index].is_extern for index in (pair.first, pair.second))
        if pair.is_produced if is_extern else pair.why:
            by_call.setdefault(pair.second, []).append(_row(graph, pair, span_of))
    return {
        index: tuple(sorted(rows, key=lambda row: (-row.bytes, row.call))) for index, rows in by_call.items()
    }


def _code(graph: LoweredGraph, pair: NotFused, value: str) -> UnfusedCode:
    """Return why two kernels stay apart: libraries, kernels of the user's, or Inductor's own answer."""
    first, second = graph.calls[pair.first], graph.calls[pair.second]
    written = {kernel.name for kernel in graph.kernels}
    if any(call.is_extern and call.name not in written for call in (first, second)):
        return "library"
    if first.is_extern or second.is_extern:
        return "user-kernel"
    if pair.is_produced and not value and not set(first.nodes).isdisjoint(second.nodes):
        return "steps"
    return code_of(pair.why)


def _row(graph: LoweredGraph, pair: NotFused, span_of: SpanOf) -> Unfused:
    read = _accesses(graph, pair.second, False)
    largest = pair.buffers[0]
    value = read[largest].node
    code = _code(graph, pair, value)
    write = _accesses(graph, pair.first, True).get(largest)
    spans = [span_of(name) for name in (*(write.by if write is not None else ()), value)]
    return Unfused(
        kernel=graph.calls[pair.first].name,
        call=pair.first,
        value=value,
        bytes=sum(read[buffer].bytes for buffer in pair.buffers),
        is_produced=pair.is_produced,
        code=code,
        reason=UNFUSED_REASONS[code],
        torch=pair.why,
        span=next(filter(None, spans), None),
    )


def _accesses(graph: LoweredGraph, call: int, written: bool) -> dict[str, Access]:
    """Return the values that a call reads, or those that it writes."""
    return {access.buffer: access for access in graph.calls[call].accesses if access.written == written}
