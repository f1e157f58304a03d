"""The order of what must be fixed, its words, and the findings that are made of it."""

from dataclasses import replace

import pytest

from aotlens.diagnostics.budgets import Budget, over_dynamo_budget
from aotlens.diagnostics.tracing import dynamo_findings
from aotlens.dynamo.hints import hint_of, library_hint
from aotlens.model.codec import dumps, loads
from aotlens.model.dynamo import Cause, Dynamo, DynamoGuard, Seconds
from aotlens.model.report import GraphId, Report
from aotlens.render.html.build import html_page
from aotlens.render.text.closing import Closing, closing_text
from aotlens.render.text.report import Shown, report_text
from aotlens.render.text.why import why_text
from aotlens.view.tabs.dynamo import all_dynamo_lines
from aotlens.view.tabs.overview.screen import overview
from aotlens.view.why import dynamo_summary, problems
from tests.report.dynamo_sample import sample_dynamo, span_at
from tests.report.sample import sample_report

DYNAMO = sample_dynamo()
REPORT = Report("2.13.0", "3.11", "why net.py", dynamo=DYNAMO)
TEXT = """\
aotlens: 2 graph breaks, 3 recompilations, 1 constant size; compiling took 4.0 s
What to fix first
  1. graph break in Net.forward  /project/net.py:16:5
     print(x)
     it cannot be traced [GB0059]
     the rest of the function runs in eager
     → remove it
  2. hidden in Net.forward  /project/net.py:30:5
     Dynamo skips it: a TorchDispatchMode is active
     → leave the mode
  3. self.step increases: 2 recompilations in Net.forward  /project/net.py:12:5  1.5 s
     the guard `self.step == 0` failed with 1, 2
     → keep it in a tensor, as a buffer, and add in place: `self.step.add_(1)`
  4. graph break in Net.forward  /project/net.py:14:5  750 ms
     hidden.item()
     the value of a tensor is needed [GB0124]
     the graph is split here; it splits helper too; 1 tensor (2.0 MiB) crosses it on each call
     tools/text.py:3:1: Dynamo stops here, in `show`
     → keep the 0-d tensor
  5. x.shape[1] = 8 in Net.forward  /project/net.py:17:5
     x
     it holds for 8 alone
Normal  a value that varies
  x.shape[0] changes: 1 recompilation  Net.forward  750 ms
Compile time  4.0 s, 100% of it in known phases
  Dynamo 3.0 s · guards 1.0 s
  2.0 s  /project/net.py:13:5
"""


def test_the_screen() -> None:
    assert why_text(REPORT) == TEXT


def test_every_break_and_recompilation_is_in_one_problem() -> None:
    found = problems(DYNAMO)
    assert [problem.kind for problem in found] == [
        "code in eager",
        "code in eager",
        "recompilations",
        "graph break",
        "constant",
        "recompilations",
    ]
    assert sum(problem.seconds for problem in found) == pytest.approx(4 * 0.75)


def test_guards_of_another_form_are_named_too() -> None:
    """The first guard alone would be a wrong fact about the others."""
    (function,) = DYNAMO.functions
    other = Cause("2 <= x.shape[0] <= 6", "size", "x.shape[0]", "<= 6", "7", span_at(13), None, "0/3")
    again = Cause("x.shape[0] == 4", "size", "x.shape[0]", "4", "6", span_at(13), None, "0/0")
    more = [
        replace(function.compilations[3], id=f"0/{n}", cause=cause) for n, cause in ((4, again), (5, other))
    ]
    changed = replace(DYNAMO, functions=(replace(function, compilations=(*function.compilations, *more)),))
    facts = [fact for problem in problems(changed) for fact in problem.facts]
    assert "the guard `x.shape[0] == 4` failed with 5, 6, then `2 <= x.shape[0] <= 6` failed with 7" in facts


def test_the_modes_of_a_module_and_of_autograd_are_normal() -> None:
    (function,) = DYNAMO.functions
    mode = Cause("self.training == True", "value", "self.training", "True", "False", None, span_at(50), "0/0")
    entries = (function.compilations[0], replace(function.compilations[1], cause=mode))
    (problem,) = problems(
        Dynamo((replace(function, compilations=entries, breaks=(), specialisations=(), skipped=()),))
    )
    assert problem.is_normal
    assert problem.facts[1] == "a module has a compilation for training and one for evaluation"


def test_an_error_under_fullgraph_comes_first() -> None:
    (function,) = DYNAMO.functions
    raised = replace(function.breaks[0], effect="error")
    first, *_ = problems(Dynamo((replace(function, breaks=(raised,), skipped=()),)))
    assert first.facts[1].startswith("the call raises an error, because of fullgraph=True")


def test_the_limit_comes_first() -> None:
    (function,) = DYNAMO.functions
    limited = replace(DYNAMO, functions=(replace(function, limit_hit=True),))
    (first, *_) = [problem for problem in problems(limited) if "limit" in problem.facts[0]]
    assert (first.kind, first.title) == ("code in eager", "self.step increases: 2 recompilations")
    assert first.facts[0].endswith("calls that need another graph run in eager, an unknown number")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "the recompile limit is reached: 1 call ran in eager, as it needs another graph"),
        (7, "the recompile limit is reached: 7 calls ran in eager, as each needs another graph"),
    ],
)
def test_calls_in_eager_after_the_limit_are_counted(count: int, words: str) -> None:
    (function,) = DYNAMO.functions
    limited = replace(DYNAMO, functions=(replace(function, limit_hit=True, eager_calls=count),))
    assert words in [fact for problem in problems(limited) for fact in problem.facts]
    assert any(words in finding.message for finding in dynamo_findings(limited))


def test_a_compilation_that_did_not_end_has_no_time() -> None:
    """A log of a job that was killed, or hangs."""
    (function,) = DYNAMO.functions
    unended = [
        replace(entry, has_ended=False, seconds=Seconds(0.0, 0.0, 0.0))
        if entry.cause is not None and entry.cause.kind == "size"
        else entry
        for entry in function.compilations
    ]
    killed = replace(DYNAMO, functions=(replace(function, compilations=tuple(unended)),))
    text = why_text(replace(REPORT, dynamo=killed))
    assert "compiling took 4.0 s, 1 compilation did not end" in text
    assert "Net.forward (0/3)  /project/net.py:11:1" in text
    assert "x.shape[0] changes: 1 recompilation  Net.forward  1 compilation did not end" in text
    assert " 0.0 ms" not in text


def test_everything_has_each_recompilation_with_its_call_and_the_guards_by_line() -> None:
    (function,) = DYNAMO.functions
    called = [
        entry if entry.cause is None else replace(entry, cause=replace(entry.cause, call=span_at(50)))
        for entry in function.compilations
    ]
    guards = (
        DynamoGuard("self.step == 0", "self.step", span_at(12), 1, 100.0),
        DynamoGuard("x.ndim == 2", "x", span_at(13), 2, 150.0),
        DynamoGuard("x.dtype == float32", "x", span_at(13, 8, 9), 1, 75.0),
    )
    measured = replace(function, compilations=tuple(called), guards=guards, guard_nanoseconds=325.0, calls=4)
    text = why_text(replace(REPORT, dynamo=replace(DYNAMO, functions=(measured,))), is_full=True)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "Net.forward (0/1) 750 ms self.step 0 → 1 called at /project/net.py:50:5" in lines
    assert "Net.forward (0/3) 750 ms x.shape[0] 4 → 5 called at /project/net.py:50:5" in lines
    assert lines[lines.index("Guards by line per call, the most expensive first") + 1 :][:2] == [
        "0.23 µs 3 checks net.py:13 x",
        "0.10 µs 1 check net.py:12 self.step",
    ]


def test_a_break_that_fullgraph_captures_says_so() -> None:
    (function,) = DYNAMO.functions
    first = replace(function.breaks[0], fails_fullgraph=False, graphs=5)
    captured = replace(DYNAMO, functions=(replace(function, breaks=(first, *function.breaks[1:])),))
    text = " ".join(why_text(replace(REPORT, dynamo=captured)).split())
    assert "under fullgraph=True it is no error, but captured" in text
    assert "5 graphs begin or end here" in text


def test_a_script_that_fails_before_anything_is_compiled() -> None:
    text = why_text(replace(REPORT, dynamo=None, incomplete="the script failed: no such file"))
    assert text.splitlines()[-1] == "Dynamo compiled nothing until then"


def test_the_lines_that_compile_are_listed() -> None:
    (function,) = DYNAMO.functions
    compiled = replace(DYNAMO, functions=(replace(function, compiled_at=(span_at(40),)),))
    assert "Net.forward  /project/net.py:40:5" in why_text(replace(REPORT, dynamo=compiled), is_full=True)
    assert any("net.py:40" in line.text for line in all_dynamo_lines(compiled))


def test_a_script_that_compiles_nothing() -> None:
    text = why_text(replace(REPORT, dynamo=None))
    assert text.startswith("Dynamo compiled nothing: ")


def test_findings_stand_at_the_expression() -> None:
    found = [(one.code, one.severity, one.span) for one in dynamo_findings(DYNAMO)]
    assert found == [
        ("AL406", "warning", span_at(14)),
        ("AL407", "warning", span_at(12)),
        ("AL408", "information", span_at(17)),
        ("AL409", "warning", span_at(30)),
    ]
    crossing, recompiled, *_ = dynamo_findings(DYNAMO)
    assert crossing.message == (
        "graph break (GB0124) at `hidden.item()`: the value of a tensor is needed; 2.0 MiB cross it on each"
        " call; keep the 0-d tensor"
    )
    assert crossing.related == DYNAMO.breaks[0].related
    assert recompiled.message.startswith("`Net`: self.step increases (0 → 1): 2 recompilations in 1.5 s")


def test_nothing_is_found_where_dynamo_was_not_used() -> None:
    assert dynamo_findings(None) == ()


def test_budgets() -> None:
    (function,) = DYNAMO.functions
    assert list(over_dynamo_budget(function, Budget())) == []
    assert list(over_dynamo_budget(function, Budget(max_graph_breaks=2, max_recompilations=3))) == []
    breaks, again = over_dynamo_budget(function, Budget(max_graph_breaks=0, max_recompilations=1))
    assert (breaks.code, again.code) == ("AL805", "AL806")
    assert [related.span for related in breaks.related] == [span_at(14), span_at(16)]
    assert again.message == (
        "`Net.forward` has 3 recompilations, over its budget of 1 (max-recompilations): self.step increases,"
        " x.shape[0] changes"
    )


def test_other_commands_show_one_line_each() -> None:
    lines = [
        "Dynamo  `aotlens why SCRIPT` explains each",
        "  graph breaks    2  /project/net.py:14:5 `hidden.item()` and 1 more",
        "  recompilations  3  self.step increases (2) and 1 more",
        "  constant sizes  1  x.shape[1] = 8",
    ]
    sample = sample_report()
    assert closing_text(Closing(sample.targets, dynamo=DYNAMO)).splitlines()[-4:] == lines
    assert report_text(replace(sample, dynamo=DYNAMO)).splitlines()[-4:] == lines
    full = report_text(replace(sample, dynamo=DYNAMO), Shown(is_full=True))
    assert "What to fix first\n  1. graph break in Net.forward" in full


def test_the_closing_table_names_the_values_that_recompiled() -> None:
    (target, *_) = sample_report().targets
    compilations = [replace(target, graph=GraphId(0, number)) for number in range(4)]
    lines = closing_text(Closing(compilations, dynamo=DYNAMO)).splitlines()
    assert lines[3] == "      self.step increases, x.shape[0] changes"
    without = closing_text(Closing(compilations)).splitlines()
    assert without[3] == "      the tensors were the same: a plain value, an attribute or a mode differed"


def test_a_break_in_a_library_has_a_hint_of_its_own() -> None:
    assert hint_of("GB0124", "x.item()", "").startswith("keep the 0-d tensor")
    assert library_hint("GB0124", "", "", calls_library=True).startswith("set `torch._dynamo.config.")
    assert library_hint("GB0025", "Remove it", "", calls_library=True).endswith(
        "before and after the call separately"
    )
    assert "newer release" in library_hint("GB0156", "", "", calls_library=False)
    setting = "Set torch._dynamo.config.allow_rnn=True to enable it"
    assert library_hint("GB0123", setting, "", calls_library=False) == setting
    assert hint_of("GB9999", "f(x)", "torch's own") == "torch's own"


def test_the_terminal_app_and_the_page_show_the_same_problems() -> None:
    report = replace(sample_report(), dynamo=DYNAMO)
    shown = [line.text for line in overview(report, report.targets[0]).lines()]
    assert f"dynamo    {dynamo_summary(DYNAMO)}" in shown
    assert any(line.startswith("  self.step increases: 2 recompilations") for line in shown)
    page = html_page(REPORT, "net.py")
    for line in all_dynamo_lines(DYNAMO):
        for part in line.parts:
            assert part.text.strip().replace("<", "\\u003c")[:30] in page


def test_it_survives_json() -> None:
    assert loads(dumps(REPORT)) == REPORT
    assert dynamo_summary(DYNAMO).startswith("2 graph breaks, 3 recompilations, 1 constant size; ")
