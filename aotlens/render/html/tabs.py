"""The tabs of one target, as blocks: lines, tables, a choice of tables, charts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aotlens.model.report import Dynamo, Report, Target
from aotlens.render.html.encode import Encoder, Json
from aotlens.render.html.graphs import graph_choice, stage_choice
from aotlens.render.html.plots import chart_block
from aotlens.view.kernels import first_launch, kernel_texts
from aotlens.view.tabs.charts import frontier_chart, memory_chart
from aotlens.view.tabs.diagnostics import diagnostic_details, diagnostic_listing
from aotlens.view.tabs.dynamo import all_dynamo_lines
from aotlens.view.tabs.kernels import (
    kernel_details,
    kernel_listing,
    kernel_totals,
    line_details,
    line_listing,
)
from aotlens.view.tabs.ledger import (
    guard_lines,
    input_details,
    input_listing,
    output_details,
    output_listing,
)
from aotlens.view.tabs.memory import (
    alive_details,
    alive_listing,
    by_size,
    curve_details,
    curve_listing,
    memory_total,
)
from aotlens.view.tabs.overview.actions import action_lines
from aotlens.view.tabs.overview.screen import ACTIONS, BLOCKERS, COSTLY, FOUND, SAVED, STEPS, overview, titled
from aotlens.view.tabs.ranks import RANKS, rank_tab_lines
from aotlens.view.tabs.saved import (
    by_bytes,
    largest_recomputed,
    recomputed_details,
    recomputed_listing,
    saved_details,
    saved_listing,
    total_line,
)
from aotlens.view.tabs.source.marks import all_diagnostics
from aotlens.view.tabs.tables.rows import Line
from aotlens.view.tabs.tradeoffs import choice_lines
from aotlens.view.tabs.wrapper import ordered_steps, step_listing

__all__ = ["dynamo_tabs", "tabs"]


def tabs(report: Report, target: Target, encoder: Encoder) -> list[object]:
    """Every tab, in the order of the terminal app's."""
    build = _Tabs(report, target, encoder)
    rows: tuple[tuple[str, str, Iterator[Json]], ...] = (
        ("overview", "Overview", build.overview()),
        ("ledger", "In/out", build.ledger()),
        ("stages", "Stages", build.stages()),
        ("graphs", "Graphs", build.graphs()),
        ("saved", "Saved", build.saved()),
        ("memory", "Memory", build.memory()),
        ("wrapper", "Wrapper", build.wrapper()),
        ("kernels", "Kernels", build.kernels()),
        ("diagnostics", "Diagnostics", build.diagnostics()),
    )
    if report.dynamo is not None:
        rows = (*rows, ("why", "Why", build.dynamo()))
    if report.ranks is not None:
        rows = (*rows, ("ranks", RANKS, build.ranks()))
    return [{"id": name, "title": title, "blocks": list(blocks)} for name, title, blocks in rows]


def dynamo_tabs(dynamo: Dynamo, encoder: Encoder) -> list[object]:
    """Return the one tab of a report without targets, as made by `aotlens why`."""
    block = encoder.lines_block(all_dynamo_lines(dynamo))
    return [{"id": "why", "title": "Why", "blocks": [block]}]


@dataclass(frozen=True, slots=True)
class _Tabs:
    """One method for each tab, which yields its blocks."""

    report: Report
    target: Target
    encoder: Encoder

    def overview(self) -> Iterator[Json]:
        content = overview(self.report, self.target)
        sections = (
            titled(ACTIONS, tuple(action_lines(self.report, self.target, has_keys=False))),
            content.facts,
            titled(SAVED, content.saved),
            titled(COSTLY, content.costly),
            titled(BLOCKERS, content.blockers),
            titled(STEPS, content.steps),
            titled(FOUND, content.diagnostics),
        )
        yield self._lines(line for section in sections if section for line in (*section, Line()))

    def ranks(self) -> Iterator[Json]:
        if self.report.ranks is not None:
            yield self._lines(rank_tab_lines(self.report.ranks))

    def dynamo(self) -> Iterator[Json]:
        if self.report.dynamo is not None:
            yield self._lines(all_dynamo_lines(self.report.dynamo))

    def ledger(self) -> Iterator[Json]:
        target = self.target
        yield self.encoder.table(
            input_listing(target), [self._details(input_details(row, target)) for row in target.inputs]
        )
        yield self.encoder.table(
            output_listing(target), [self._details(output_details(row, target)) for row in target.outputs]
        )
        further = tuple(guard_lines(target))
        if further:
            yield self._lines(further)

    def graphs(self) -> Iterator[Json]:
        yield graph_choice(self.target, self.encoder)

    def stages(self) -> Iterator[Json]:
        yield stage_choice(self.target, self.encoder)

    def saved(self) -> Iterator[Json]:
        target, partition = self.target, self.target.partition
        yield self._lines([total_line(target)])
        dear = by_bytes(partition.saved) if partition else ()
        yield self.encoder.table(
            saved_listing(target), [self._details(saved_details(row, target)) for row in dear]
        )
        if partition is None:
            return
        yield self.encoder.table(
            recomputed_listing(target),
            [self._details(recomputed_details(row, target)) for row in largest_recomputed(partition)],
        )
        yield self._lines(choice_lines(partition))
        if (chart := frontier_chart(partition)) is not None:
            yield chart_block(chart, "frontier")

    def memory(self) -> Iterator[Json]:
        target, memory = self.target, self.target.memory
        yield self._lines([memory_total(target)])
        chart = memory_chart(target)
        if memory is None or chart is None:
            return
        yield chart_block(chart, "memory", "curve")
        curve = curve_listing(target)
        more = [
            self._details(curve_details(target, index, curve.rows.link(index)))
            for index in range(len(curve.rows))
        ]
        alive = [self._details(alive_details(row, target)) for row in by_size(memory)]
        items = (
            ("curve", "node by node", self.encoder.table(curve, more)),
            ("alive", "alive at the peak", self.encoder.table(alive_listing(target), alive)),
        )
        yield _choice(items)

    def wrapper(self) -> Iterator[Json]:
        target, wrapper = self.target, self.target.wrapper
        if wrapper is None:
            yield self.encoder.table(step_listing(target))
            return
        text = self.encoder.text(wrapper.source)
        more: list[list[Json]] = [
            [[], [["module", text, *(step.lines or (0, 0))]]] for step in ordered_steps(wrapper)
        ]
        yield self.encoder.table(step_listing(target), more)

    def kernels(self) -> Iterator[Json]:
        target = self.target
        yield self._lines([kernel_totals(target)])
        if not target.kernels:
            return
        more: list[list[Json]] = []
        for kernel in target.kernels:
            texts: list[object] = [
                [language, self.encoder.text(text), 0, 0]
                for language, text in kernel_texts(first_launch(kernel, target.kernels))
            ]
            more.append([*self._details(kernel_details(kernel, target)), texts])
        lines = [self._details(line_details(line, target)) for line in target.gpu_lines]
        items = (
            ("kernels", "in call order", self.encoder.table(kernel_listing(target), more)),
            ("lines", "by source line", self.encoder.table(line_listing(target), lines)),
        )
        yield _choice(items[: 2 if target.gpu_lines else 1])

    def diagnostics(self) -> Iterator[Json]:
        findings = all_diagnostics(self.report, self.target)
        files = {edit.span.file for diagnostic in findings for fix in diagnostic.fixes for edit in fix.edits}
        texts = {file: self.encoder.sources.get(file) for file in files}
        sources = {file: "\n".join(text.raw) + "\n" for file, text in texts.items() if not text.problem}
        more = [
            self._details(diagnostic_details(diagnostic, self.target, sources, has_keys=False))
            for diagnostic in findings
        ]
        yield self.encoder.table(diagnostic_listing(self.report, self.target), more)

    def _details(self, lines: Iterable[Line]) -> list[Json]:
        return [self.encoder.lines(lines)]

    def _lines(self, lines: Iterable[Line]) -> Json:
        return self.encoder.lines_block(lines)


def _choice(items: Iterable[tuple[str, str, Json]]) -> Json:
    listed: list[object] = [{"name": name, "title": title, "blocks": [block]} for name, title, block in items]
    return {"kind": "choice", "items": listed, "first": 0}
