"""What Inductor's scheduler says of two kernels that it did not make one, as rows of the report.

Invariant: every sentence that the scheduler can say has its reason in the table, which a test holds against
torch's source; one that is new is `other`, with torch's own words beside it.
"""

from aotlens.codegen.gpu.costs import SpanOf
from aotlens.codegen.gpu.records import Access, LoweredGraph, NotFused
from aotlens.model.report import Unfused, UnfusedCode
from aotlens.view.kernels import REASONS

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
    ("foreach", "foreach"),
    ("candidate producer", "foreach"),
    ("candidate consumer", "foreach"),
    ("register spilling", "spills"),
    ("device mismatch", "device"),
    ("fusion for buffer explicit disabled", "disabled"),
    ("grouped node", "disabled"),
)
"""The reason by how torch's sentence begins."""


def code_of(words: str) -> UnfusedCode:
    """The reason for a sentence of torch's."""
    return next((code for begin, code in WORDS if words.startswith(begin)), "other")


def unfused_rows(graph: LoweredGraph, span_of: SpanOf) -> dict[int, tuple[Unfused, ...]]:
    """By the position of a call, the earlier calls that it shares values with, the costliest first."""
    found: dict[int, list[Unfused]] = {}
    for pair in graph.not_fused:
        is_extern = any(graph.calls[at].is_extern for at in (pair.first, pair.second))
        if pair.is_produced if is_extern else pair.why:
            found.setdefault(pair.second, []).append(_row(graph, pair, span_of))
    return {at: tuple(sorted(rows, key=lambda row: (-row.bytes, row.call))) for at, rows in found.items()}


def _code(graph: LoweredGraph, pair: NotFused, value: str) -> UnfusedCode:
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
    made = _accesses(graph, pair.first, True).get(largest)
    spans = [span_of(name) for name in (*(made.by if made is not None else ()), value)]
    return Unfused(
        kernel=graph.calls[pair.first].name,
        call=pair.first,
        value=value,
        bytes=sum(read[buffer].bytes for buffer in pair.buffers),
        is_produced=pair.is_produced,
        code=code,
        reason=REASONS[code],
        torch=pair.why,
        span=next(filter(None, spans), None),
    )


def _accesses(graph: LoweredGraph, call: int, written: bool) -> dict[str, Access]:
    """The values that a call reads, or those that it writes."""
    return {access.buffer: access for access in graph.calls[call].accesses if access.written == written}
