"""The records of one compilation, each read and parsed once.

Invariant: of a kind with several records, those of the last attempt that has any count: earlier attempts
ended at a graph break or a restart.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from aotlens.trace.graphs.records import Graph
from aotlens.trace.graphs.tensor_text import Hints
from aotlens.trace.graphs.text import parse_graph
from aotlens.trace.logs.reader import Compilation, Frame, Record

__all__ = ["CompilationFacts", "GraphSet"]

_METRIC = r'"%s": (?:"((?:[^"\\]|\\.)*)"|(-?[\d.]+))'
METRICS_HEAD = 4_096
"""The first fields of the metrics name the function; 40 kB of settings follow."""


class CompilationFacts:
    """Reads one compilation's records on demand."""

    def __init__(self, compilation: Compilation) -> None:
        self.compilation = compilation
        self.process = compilation.process
        self._by_kind: dict[str, list[Record]] = defaultdict(list)
        for record in compilation.records():
            self._by_kind[record.kind].append(record)
        self._graphs: dict[tuple[int, int], Graph] = {}

    def records(self, *kinds: str) -> tuple[Record, ...]:
        """Return the records of these kinds in the last attempt that has any."""
        records = self.every(*kinds)
        attempt = max((record.attempt for record in records), default=0)
        return tuple(record for record in records if record.attempt == attempt)

    def every(self, *kinds: str) -> tuple[Record, ...]:
        """Return the records of these kinds in all attempts."""
        if len(kinds) == 1:
            return tuple(self._by_kind.get(kinds[0], ()))
        records = (record for kind in kinds for record in self._by_kind.get(kind, ()))
        return tuple(sorted(records, key=lambda record: record.row))

    def text(self, kind: str, index: int = 0) -> str:
        """Return a payload; empty if there is none of that kind and number."""
        records = self.records(kind)
        return self.process.text(records[index]) if index < len(records) else ""

    def value(self, record: Record) -> dict[str, object]:
        """Return the record's header value; empty if it is damaged."""
        value = self.process.header(record)
        return value if isinstance(value, dict) else {}

    def graph(self, kind: str, index: int = 0) -> Graph | None:
        """Return a graph of the last attempt; None if it was not logged."""
        records = self.records(kind)
        if index >= len(records):
            return None
        record = records[index]
        key = record.file, record.row
        if key not in self._graphs:
            self._graphs[key] = parse_graph(self.process.text(record))
        return self._graphs[key]

    @cached_property
    def hints(self) -> Hints:
        """Return the values of symbols when the code was compiled."""
        sizes = (pair for pair in self._symbols if re.fullmatch(r"-?\d{1,18}", pair[1]))
        return {symbol: int(text) for symbol, text in sizes}

    @cached_property
    def numbers(self) -> Mapping[str, float]:
        """Return the values of symbols for floats and sizes when the code was compiled."""
        form = r"-?\d{1,40}\.\d{0,40}(?:e[+-]?\d{1,3})?"
        floats = (pair for pair in self._symbols if re.fullmatch(form, pair[1]))
        return {**self.hints, **{symbol: float(text) for symbol, text in floats}}

    @cached_property
    def _symbols(self) -> tuple[tuple[str, str], ...]:
        """Return each symbol with the text of its value, in the order of the log."""
        values = [self.value(record) for record in self.every("create_symbol")]
        return tuple((str(value.get("symbol", "")), str(value.get("val", ""))) for value in values)

    @property
    def stack(self) -> tuple[Frame, ...]:
        """Return the stack when the function was compiled, the function itself last; from `dynamo_start`.

        It is read anew each time: logs have many compilations.
        """
        records = self.every("dynamo_start")
        return self.process.frames(records[-1]) if records else ()

    @cached_property
    def frame(self) -> Frame | None:
        """Return the compiled function's definition."""
        stack = self.stack
        return stack[-1] if stack else None

    @cached_property
    def caller(self) -> Frame | None:
        """Return the innermost frame outside of torch that called the compiled function."""
        return next((frame for frame in reversed(self.stack[:-1]) if "/torch/" not in frame.file), None)

    @cached_property
    def metrics(self) -> dict[str, object]:
        """Return the metrics of the compilation; empty if it never ended."""
        records = self.every("compilation_metrics")
        return self.value(records[-1]) if records else {}

    def metric(self, name: str) -> str:
        """Return one of the first metrics without reading them all; empty if it is missing."""
        records = self.every("compilation_metrics")
        if not records:
            return ""
        head = self.process.trace.head(records[-1], METRICS_HEAD)
        match = re.search(_METRIC % re.escape(name), head)
        return (match[1] or match[2] or "") if match else ""

    @cached_property
    def sets(self) -> tuple["GraphSet", ...]:
        """Return the AOT graphs: one set, or one per part if a wrapper splits Dynamo's graph (DDP).

        A compilation that ended before AOTAutograd's last graphs has one set with what there is: the joint
        graph, or Dynamo's graph alone, as for a backend that does not use AOTAutograd.
        """
        count = max(len(self.records("aot_forward_graph")), len(self.records("aot_inference_graph")))
        if count == 0:
            has_joint = bool(self.records("aot_joint_graph"))
            return (GraphSet(self, 0),) if has_joint or self.records("dynamo_output_graph") else ()
        return tuple(GraphSet(self, index) for index in range(count))


class GraphSet:
    """The graphs of one target."""

    def __init__(self, facts: CompilationFacts, index: int) -> None:
        self.facts = facts
        self.index = index
        self.joint = facts.graph("aot_joint_graph", index)
        self.forward = facts.graph("aot_forward_graph", index)
        self.backward = facts.graph("aot_backward_graph", index)
        self.inference = facts.graph("aot_inference_graph", index)
        self.captured = facts.graph("dynamo_output_graph")

    @property
    def first(self) -> Graph | None:
        """Return the graph that runs at a call: the forward or the inference graph."""
        return self.forward or self.inference

    @cached_property
    def metadata(self) -> str:
        """Return torch's `ViewAndMutationMeta` as text; empty if it was not logged."""
        kinds = (
            "aot_forward_graph_fw_metadata",
            "aot_joint_graph_fw_metadata",
            "aot_inference_graph_fw_metadata",
        )
        return next((text for kind in kinds if (text := self.facts.text(kind, self.index))), "")
