"""One fact reads the same in text, page, terminal app, hover, SARIF and Markdown.

Invariant: the expected words are written here, not taken from `aotlens.view`, so that a change of one front
end alone fails, and so does one that two front ends happen to make alike.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from lsprotocol import types

from aotlens.compare.difference import report_change
from aotlens.diagnostics.budgets import Budget
from aotlens.diagnostics.checked import Checked, CheckedTarget, Finding
from aotlens.diagnostics.step_memory import step_findings
from aotlens.model import Partition, Report, SavedValue, Target
from aotlens.model.fit import FitAdvice, FitPlan
from aotlens.render import findings_json, findings_text, github, sarif
from aotlens.render.html.build import html_page
from aotlens.render.markdown import difference_markdown
from aotlens.render.text.difference import difference_lines
from aotlens.render.text.report import Shown, report_text
from aotlens.view.partition.saved import alive_anyway, owning, recomputed_total, saved_total
from aotlens.view.step_memory.step import fit_lines
from aotlens.view.tabs import changes, diagnostics, fit, kernels, ledger, memory, saved, wrapper
from aotlens.view.tabs.overview.screen import overview
from aotlens.view.tabs.tables.rows import Line, Listing
from lsp_server.index import build
from lsp_server.settings import Settings
from lsp_server.translate.expression import expression_text
from lsp_server.translate.hover import argument_text, function_text
from lsp_server.translate.steps import step_hints, step_lenses
from lsp_server.views import Views
from tests.fit.sample import GATED, LAYER, MIB, on_gpu, sample_fit, sample_fit_report
from tests.report.sample import MODEL, sample_report, span, tensor, training_target
from tests.report.sample_kernels import gpu_sample
from tests.report.sample_partition import chosen_partition

LAYERS = 12


def layered_report() -> Report:
    """Twelve identical layers that save two values each, and what is alive anyway."""
    chosen = chosen_partition()
    wide = SavedValue("relu", tensor("f32[512, 256]"), 1 << 19, "new", "cheap", span("x + self.down(gated)"))
    free = replace(wide, node="weight", bytes=0, owner="parameter")
    layers = tuple(
        replace(value, node=f"{value.node}_{layer}", layer=f"h.{layer}")
        for layer in range(LAYERS)
        for value in (wide, replace(wide, node="gelu", bytes=1 << 18), free)
    )
    values = (*chosen.saved, *layers)
    partition = replace(chosen, saved=values, saved_bytes=sum(value.bytes for value in values))
    return replace(sample_report(), targets=(replace(training_target(), partition=partition),))


def full_report() -> Report:
    """A budget with certificates, kernels for this machine and kernels for a GPU."""
    here, for_gpu = training_target(), gpu_sample()
    target = replace(
        for_gpu.targets[0],
        partition=chosen_partition(),
        kernels=(*here.kernels, *for_gpu.targets[0].kernels),
    )
    return replace(for_gpu, targets=(target,))


# The front ends: all that each shows of the first target.


def in_text(report: Report) -> str:
    return report_text(report, Shown(is_full=True))


def on_the_page(report: Report) -> str:
    return html_page(report, "model.py")


def in_the_app(report: Report) -> str:
    return "\n".join(_app_texts(report, report.targets[0]))


def in_hovers(report: Report) -> str:
    target = report.targets[0]
    spots = build(report, str(MODEL), MODEL.read_text().splitlines(), lambda file: file).spots
    arguments = (argument_text(target, row) for row in target.inputs)
    return "\n".join([function_text(target), *arguments, *map(expression_text, spots)])


def _app_texts(report: Report, target: Target) -> Iterator[str]:
    partition, steps = target.partition, target.wrapper
    assert partition is not None
    assert steps is not None
    yield from _texts(overview(report, target).facts)
    yield from _texts([saved.total_line(target), kernels.kernel_totals(target), memory.memory_total(target)])
    for listing in (
        saved.saved_listing(target),
        saved.recomputed_listing(target),
        ledger.input_listing(target),
        ledger.output_listing(target),
        wrapper.step_listing(target),
        diagnostics.diagnostic_listing(report, target),
        kernels.kernel_listing(target),
    ):
        yield from _rows(listing)
    for details in (
        *(saved.saved_details(value, target) for value in partition.saved),
        *(saved.recomputed_details(value, target) for value in partition.recomputed),
        *(ledger.input_details(row, target) for row in target.inputs),
        *(ledger.output_details(row, target) for row in target.outputs),
        *(wrapper.step_details(step, target) for step in steps.steps),
        *(kernels.kernel_details(kernel, target) for kernel in target.kernels),
    ):
        yield from _texts(details)


def _texts(lines: Iterator[Line] | tuple[Line, ...] | list[Line]) -> Iterator[str]:
    return (line.text for line in lines)


def _rows(listing: Listing) -> Iterator[str]:
    for position in range(len(listing.rows)):
        cells = listing.rows.cells(position)
        yield "  ".join(cell if isinstance(cell, str) else cell.text for cell in cells)


TEXT, PAGE, APP, HOVER = in_text, on_the_page, in_the_app, in_hovers
EVERYWHERE = (TEXT, PAGE, APP, HOVER)


@dataclass(frozen=True)
class Fact:
    """One fact of the sample, in the words of every front end that shows it."""

    kind: str
    words: str
    front_ends: tuple[Callable[[Report], str], ...] = EVERYWHERE

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}"


FACTS = (
    Fact("bytes", "16.0 KiB in 2 values"),
    Fact("bytes", "2.0 KiB per call"),
    Fact("bytes", "32.0 KiB"),
    Fact("time", "3.50 µs"),
    Fact("time", "0.50 µs"),
    Fact("time", "at least 0.50 µs (an estimate)", (PAGE, APP, HOVER)),
    Fact("time", "codegen 820 ms"),
    Fact("time", "939 ms", (TEXT, PAGE, APP)),
    Fact("arithmetic", "8.2 kFLOP"),
    Fact("share", "75%"),
    Fact("share", "occupancy 75%", (PAGE, APP, HOVER)),
    Fact("grid", "8 blocks", (TEXT, PAGE, APP)),
    Fact("tensor", "f32[32, 64]"),
    Fact("kind of input", "parameter"),
    Fact("kind of input", "buffer"),
    Fact("kind of input", "argument"),
    Fact("what becomes of an input", "copied back"),
    Fact("what becomes of an input", "mutated in the graph"),
    Fact("kind of output", "new, has grad"),
    Fact("kind of output", "view of cache, has grad"),
    Fact("kind of output", "view of an intermediate, has grad"),
    Fact("name of a saved value", "hidden"),
    Fact("name of a saved value", "down.weight"),
    Fact("name of a saved value", "addmm"),
    Fact("saved value", "donated", (TEXT, PAGE, APP)),
    Fact("node at the peak", "forward, mul_1"),
    Fact("reason", "expensive to recompute (matrix product) [costly]"),
    Fact("reason", "the least recomputation within the memory budget [budget]"),
    Fact("reason", "an override in the policy [user]"),
    Fact("reason", "overrules an activation checkpoint"),
    Fact("reason", "recomputing it would need addmm in self.up(x) (expensive to recompute)"),
    Fact("reason", "the next cheapest set costs 1.5 KiB more and 2.0 kFLOP less, saving sigmoid and mul_1"),
    Fact("reason", "carries a gradient, so autograd must see the write: the wrapper copies it back"),
    Fact("reason", "a view of argument `cache`, made again from it"),
    Fact("reason", "two outputs are views"),
)


def squeezed(text: str) -> str:
    return " ".join(text.split()).lower()


@pytest.fixture(scope="module")
def shown() -> dict[Callable[[Report], str], str]:
    """What each front end shows of the full report."""
    report = full_report()
    return {front_end: squeezed(front_end(report)) for front_end in EVERYWHERE}


@pytest.mark.parametrize("fact", FACTS, ids=str)
def test_a_fact_reads_the_same_everywhere(fact: Fact, shown: dict[Callable[[Report], str], str]) -> None:
    missing = [
        front_end.__name__ for front_end in fact.front_ends if fact.words.lower() not in shown[front_end]
    ]
    assert missing == []


STEP_FACTS = (
    "12.0 MiB at the peak of step 3: backward, aten.mm at",
    "does not fit T4: 14.0 MiB reserved of 13.0 MiB, 1.0 MiB too little",
    "ran on fake tensors without memory; counts memory on cpu; the previous step allocates the same",
    "Over the step: forward 10.0 MiB, backward 12.0 MiB, optimizer 7.0 MiB",
    "optimizer state exp_avg",
    "saved activation",
    "2 storages",
    "hidden * hidden.sigmoid()",
    "no line of yours",
    "6.0 MiB",
    "the data loader has <no> workers",
    "8.0 MiB  Checkpoint self.up",
    "4.0 MiB less; 12% more FLOPs; training equal",
    "Target 9.0 MiB is reached: 8.0 MiB with 1 edit",
)


@pytest.mark.parametrize("words", STEP_FACTS)
def test_the_step_reads_the_same_everywhere(words: str) -> None:
    advice = FitAdvice(
        "Checkpoint self.up", "checkpoint", 8 * MIB, 4 * MIB, cost="12% more FLOPs", outcome="equal"
    )
    plan = FitPlan(9 * MIB, 8 * MIB, ("Checkpoint self.up",))
    step = replace(on_gpu(sample_fit(), 13 * MIB), advice=(advice,), plan=plan)
    listings = (fit.fit_kind_listing(step), fit.fit_line_listing(step))
    lines = (*fit.fit_summary(step), *fit.fit_notes(step))
    front_ends = {
        "text": "\n".join(fit_lines(step)),
        "page": html_page(sample_fit_report(step), "train.py").replace("\\u003c", "<"),
        "app": "\n".join((*_texts(lines), *(row for listing in listings for row in _rows(listing)))),
    }
    missing = [name for name, text in front_ends.items() if squeezed(words) not in squeezed(text)]
    assert missing == []


def test_the_step_reads_the_same_in_the_editor() -> None:
    step = on_gpu(sample_fit(), 13 * MIB)
    views, path = Views(), str(MODEL)
    snapshot = views.snapshot(path)
    report = replace(sample_fit_report(step), diagnostics=tuple(step_findings(step)))
    views.hold_step(path, report, views.prepare(report, path, snapshot.lines.traced), snapshot)
    whole = types.Range(types.Position(0, 0), types.Position(1000, 0))
    (lens,) = step_lenses(views, path, MODEL.as_uri(), snapshot.lines.traced)
    hints = {hint.position.line + 1: hint for hint in step_hints(views, path, Settings(), whole)}
    assert lens.command is not None
    assert lens.command.title == (
        "step: 12.0 MiB at the peak, in the backward; does not fit T4: 14.0 MiB reserved of 13.0 MiB, 1.0 MiB"
        " too little"
    )
    assert {line: hint.label for line, hint in hints.items()} == {
        GATED.line: "6.0 MiB at the step's peak",
        LAYER.line: "2.0 MiB at the step's peak",
    }
    assert "- 6.0 MiB saved activation" in str(hints[GATED.line].tooltip)
    assert [finding.code for _, finding in views.findings(path)] == ["AL307", "AL308"]


def test_a_difference_has_one_sign_everywhere() -> None:
    old = sample_report()
    plain = old.targets[0]
    assert plain.partition is not None
    less = replace(plain.partition, saved=plain.partition.saved[1:], saved_bytes=0)
    new = replace(old, targets=(replace(plain, partition=less), *old.targets[1:]))
    change = report_change(old, new)
    front_ends = {
        "text": "\n".join(line.plain for line in difference_lines(change, 100)),
        "Markdown": difference_markdown(change, ()),
        "app": "\n".join(_texts(changes.changes(plain, new.targets[0]))),
    }
    for name, text in front_ends.items():
        assert "−8.0 KiB" in text, name
        assert "-8.0 KiB" not in text, name
        assert "no longer saved" in text, name


def test_a_finding_reads_the_same_everywhere() -> None:
    report = full_report()
    target = report.targets[0]
    findings = tuple(
        Finding(item, item.span.file, target.qualname) for item in target.diagnostics if item.span
    )
    checked = Checked((str(MODEL),), (CheckedTarget(str(MODEL), target, Budget()),), findings, (), 1)
    front_ends = {
        "text": report_text(report),
        "page": html_page(report, "model.py"),
        "app": "\n".join(_rows(diagnostics.diagnostic_listing(report, target))),
        "check": findings_text.render(checked),
        "GitHub": github.render(checked),
        "SARIF": sarif.render(checked),
        "JSON": findings_json.render(checked),
        "Markdown": difference_markdown(report_change(report, report), target.diagnostics),
    }
    assert findings
    for finding in findings:
        for name, text in front_ends.items():
            assert squeezed(finding.diagnostic.message) in squeezed(text), name


@pytest.mark.parametrize("front_end", EVERYWHERE)
def test_saved_and_recomputed_values_are_counted_alike(front_end: Callable[[Report], str]) -> None:
    report = layered_report()
    partition = report.targets[0].partition
    assert partition is not None
    assert len(owning(partition)) == sum(value.bytes > 0 for value in partition.saved) > LAYERS
    text = " ".join(front_end(report).split())
    for total in (saved_total(partition), recomputed_total(partition)):
        # The page holds the parts of a line, which have colours of their own, one by one.
        parts = total.split(" in ") if front_end is on_the_page else [total]
        assert [part for part in parts if part not in text] == []
    assert f"in {len(partition.saved)} values" not in text


def test_what_is_alive_anyway_is_counted_apart() -> None:
    partition = layered_report().targets[0].partition
    assert isinstance(partition, Partition)
    assert len(owning(partition)) + len(alive_anyway(partition)) == len(partition.saved)
