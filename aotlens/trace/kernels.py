"""Report kernels with the user's lines that each computes, and the memory of the code that ran."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from aotlens.model.partition import LiveKind
from aotlens.model.report import Kernel, LiveValue, Memory, Partition, SavedValue, Span
from aotlens.model.source import Phase
from aotlens.trace.facts import GraphSet
from aotlens.trace.graphs.records import Graph, Line
from aotlens.trace.graphs.text import is_device_mode
from aotlens.trace.output_code import Call, OutputCode, code_id, parse_code
from aotlens.trace.source.columns import widest_from
from aotlens.trace.source.lines import Locate, first_spans
from aotlens.trace.traffic import buffers_of, traffic_of

__all__ = ["Codes", "codes_of", "kernels_of", "memory_of"]

_FRAME = re.compile(
    r'File "([^"]{1,4096})", line (\d{1,9}), in (\S+)(?:\n    (\S[^\n]{0,4000}))?(?:\n    ( *)([~^]+))?'
)
"""One frame: its line's text, then the carets below the expression that runs."""
_STACKS = "inductor_provenance_tracking_kernel_stack_traces"

Codes = Mapping[Phase, OutputCode]
PHASES: tuple[Phase, ...] = ("forward", "backward", "inference")


def codes_of(graphs: GraphSet, partition: Partition | None) -> dict[Phase, OutputCode]:
    """Return the generated modules of the target by phase; empty without Inductor."""
    facts = graphs.facts
    saved_bytes = {value.node: value.bytes for value in partition.saved if value.bytes} if partition else {}
    texts = [facts.process.text(record) for record in facts.records("inductor_output_code")]
    codes: dict[Phase, OutputCode] = {}
    for phase in PHASES:
        own = [text for text in texts if code_id(text).endswith(f"_{phase}")]
        if graphs.index < len(own):
            codes[phase] = parse_code(
                own[graphs.index], facts.hints, saved_bytes if phase == "backward" else None
            )
    return codes


def kernels_of(graphs: GraphSet, codes: Codes, locate: Locate) -> tuple[Kernel, ...]:
    """Return a row for each call, the forward's first."""
    records = _stack_records(graphs)
    rows: list[Kernel] = []
    for phase, code in codes.items():
        stacks = _stacks_of(code, records)
        graph = graphs.backward if phase == "backward" else graphs.first
        buffers = buffers_of(graph, code, graphs.facts.hints)
        is_cuda = graph is not None and any("cuda" in argument.type for argument in graph.arguments)
        for number, call in enumerate(code.calls):
            traffic = traffic_of(call, buffers, graphs.facts.hints)
            own = _stack_spans(stacks.get(call.handle or call.name), locate)
            spans = own or _spans(call, graphs, phase, locate)
            rows.append(
                Kernel(
                    call.name,
                    phase,
                    _device(call, is_cuda),
                    call.source,
                    call.nodes,
                    spans,
                    kind="generated" if call.is_generated else "library",
                    call=number,
                    added="" if spans else "the log does not say for which line",
                    bytes_read=traffic.bytes_read if traffic else None,
                    bytes_written=traffic.bytes_written if traffic else None,
                    bytes_moved=traffic.bytes_read + traffic.bytes_written if traffic else None,
                    flops=traffic.flops if traffic else None,
                )
            )
    return tuple(rows)


def _device(call: Call, is_cuda: bool) -> str:
    """Return the device of the call's code; `library` for a library call on the CPU."""
    match = re.search(r"device_str='(\w{1,20})'|device=['\"](\w{1,20})", call.source)
    if match:
        return match[1] or match[2]
    if is_cuda and not call.is_generated:
        return "cuda"
    return "cpu" if call.name.startswith("cpp") else "gpu" if call.name.startswith("triton") else "library"


def _stack_records(graphs: GraphSet) -> list[dict[str, object]]:
    """Return the stacks of provenance tracking, one record for each generated module; none without it."""
    records = []
    for record in graphs.facts.records(_STACKS):
        try:
            value = json.loads(graphs.facts.process.text(record) or "{}")
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            records.append(value)
    return records


def _stacks_of(code: OutputCode, records: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return the record with most calls of this module: each module numbers its calls anew."""
    names = {call.handle or call.name for call in code.calls}
    return max(records, key=lambda record: len(names & record.keys()), default={})


def _stack_spans(stacks: object, locate: Locate) -> tuple[Span, ...]:
    """Return the innermost expression of each stack."""
    texts = [stack for stack in stacks if isinstance(stack, str)] if isinstance(stacks, list) else []
    return tuple(dict.fromkeys(span for text in texts for span in _innermost(text, locate)))


def _innermost(stack: str, locate: Locate) -> Iterator[Span]:
    """Yield the expression at which the stack's carets begin, or the whole line without them.

    torch logs no end of an expression: its carets run to the end of the line.
    """
    frames = [frame for frame in _FRAME.findall(stack) if not is_device_mode(frame[0])]
    if not frames:
        return
    file, number, function, code, before, carets = frames[-1]
    code = code.rstrip()
    span = locate(Line(file, int(number), function, code), None)
    columns = widest_from(code, len(before)) if carets and code.isascii() else None
    if columns is not None and span.end_col - span.col == len(code):
        span = replace(span, col=span.col + columns.start, end_col=span.col + columns.end)
    yield span


def _spans(call: Call, graphs: GraphSet, phase: Phase, locate: Locate) -> tuple[Span, ...]:
    """Return the lines of the nodes in the comment above the call: Dynamo's nodes, or the AOT graph's."""
    names = set(call.nodes)
    sources: tuple[Graph | None, ...] = (
        graphs.captured,
        graphs.backward if phase == "backward" else graphs.first,
    )
    for graph in sources:
        nodes = [node for node in graph.nodes if node.name in names] if graph else []
        if nodes:
            return first_spans(locate, nodes)
    return _by_operators(call, graphs, locate)


def _by_operators(call: Call, graphs: GraphSet, locate: Locate) -> tuple[Span, ...]:
    """Return the line by operators: C++ code has no comment, but its name lists operators."""
    if not call.is_generated or graphs.captured is None:
        return ()
    by_operator: dict[str, set[Line]] = {}
    for node in graphs.captured.nodes:
        if node.line is not None:
            by_operator.setdefault(_base_name(node.target), set()).add(node.line)
    name = f"_{call.name}_"
    lines = [lines for operator, lines in by_operator.items() if operator and f"_{operator}_" in name]
    return tuple(dict.fromkeys(locate(line, None) for group in lines if len(group) == 1 for line in group))


def _base_name(target: str) -> str:
    """Return `gelu` for `torch._C._nn.gelu` and `Tensor.gelu_`."""
    return target.rpartition(".")[2].strip("_") if not target.startswith("aten.") else target.split(".")[1]


def memory_of(codes: Codes, kernels: Sequence[Kernel], partition: Partition | None) -> Memory | None:
    """Return the curve of the generated code; None if no such code was logged, or a size is unknown."""
    first_phase: Phase = "forward" if "forward" in codes else "inference"
    first, backward = codes.get(first_phase), codes.get("backward")
    if first is None or not first.is_known or (backward is not None and not backward.is_known):
        return None
    saved = {value.node: value for value in partition.saved if value.bytes} if partition is not None else {}
    returned_bytes = first.returned_bytes
    results = max(0, returned_bytes - sum(value.bytes for value in saved.values()))
    rows = [(step.name, step.bytes) for step in first.steps]
    phase, peak, code = first_phase, first.peak_bytes, first
    if backward is not None:
        rows += [(step.name, results + step.bytes) for step in backward.steps]
        if results + backward.peak_bytes > peak:
            phase, peak, code = "backward", results + backward.peak_bytes, backward
    return Memory(
        peak,
        tuple(rows),
        tuple(_live(code, kernels, phase, saved, results if phase == "backward" else 0)),
        peak_node=code.peak_step,
        peak_phase=phase,
        forward_nodes=len(first.steps),
        held_bytes=returned_bytes,
    )


def _live(
    code: OutputCode, kernels: Sequence[Kernel], phase: Phase, saved: Mapping[str, SavedValue], results: int
) -> Iterator[LiveValue]:
    spans = {kernel.call: kernel.spans[0] for kernel in kernels if kernel.phase == phase and kernel.spans}
    if results:
        yield LiveValue("results of the forward", results, None, "result", made_in="forward")
    for buffer in sorted(code.live_at_peak, key=lambda buffer: -buffer.bytes)[:200]:
        value = saved.get(buffer.name)
        kind: LiveKind = "gradient" if phase == "backward" else "result"
        yield LiveValue(
            buffer.name,
            buffer.bytes,
            value.span if value is not None else spans.get(buffer.call) if buffer.call is not None else None,
            "saved" if value is not None else "temporary" if buffer.last is not None else kind,
            made_in="forward" if value is not None else phase,
            last=buffer.last,
            last_in=phase if buffer.last is not None else None,
        )
