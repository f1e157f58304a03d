"""What did not run compiled is said first, in the same words by text, TUI and page."""

from dataclasses import replace

from aotlens.diagnostics.tracing import from_not_compiled
from aotlens.model.codec import dumps, loads
from aotlens.model.eager import NotCompiled
from aotlens.model.report import Diagnostic
from aotlens.render.text.report import report_text
from aotlens.view.tabs.overview.screen import overview
from aotlens.view.tabs.tables.rows import Part
from aotlens.view.tabs.trace_state import TraceState, state_parts
from tests.report.sample import sample_report, span

REST = NotCompiled(
    "Net", "Net.forward", "rest of function", "Attempted to wrap RNN", "AL405", span("def score"), 3
)
BREAK = NotCompiled("Net", "Net.forward", "graph break", "print", "AL406", span("class Block(nn.Module):"))
REPORT = replace(sample_report(), not_compiled=(REST, BREAK), incomplete="the script was stopped after 10 s")


def test_text_starts_with_it() -> None:
    lines = report_text(REPORT).splitlines()
    assert lines[0].startswith("Not compiled  Net  ")
    assert lines[0].endswith("  rest of function")
    assert lines[1:4] == [
        "  Attempted to wrap RNN [AL405]",
        "Incomplete: the script was stopped after 10 s",
        "",
    ]


def test_the_first_screen_starts_with_it() -> None:
    first, second, *_ = overview(REPORT, REPORT.targets[0]).facts
    assert [part.text.strip() for part in first.parts if part.role != "place"] == [
        "in eager",
        "Net",
        "rest of function",
    ]
    assert second.parts[-1] == Part("the script was stopped after 10 s", "warning")


def test_the_title_does_not_read_as_green() -> None:
    ready = TraceState("ready", elapsed_ms=5.0)
    texts = [part.text for part in state_parts(ready, REPORT, 0.0)]
    assert texts == ["1 not compiled", " · ", "incomplete", " · ", "traced", " in 5.0 ms"]


def test_it_is_a_finding_at_its_expression() -> None:
    assert from_not_compiled(REST) == Diagnostic(
        "AL405",
        "warning",
        "`Net` is not compiled (rest of function): Attempted to wrap RNN",
        span("def score"),
    )
    assert from_not_compiled(BREAK).severity == "information"


def test_it_survives_json() -> None:
    assert loads(dumps(REPORT)) == REPORT
