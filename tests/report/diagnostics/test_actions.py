"""What to do first: which findings, in which order, with which words."""

from dataclasses import replace

from aotlens.model import Diagnostic, Report
from aotlens.model.dynamo import Compilation, CompileSeconds, Dynamo, DynamoFunction, Seconds
from aotlens.model.recompilations import Cause
from aotlens.model.source import Cost
from aotlens.render.text.actions import action_lines
from aotlens.render.text.layout import Page, to_text
from aotlens.view.actions import MOST_ACTIONS, NOTHING_TO_DO, what_to_do
from aotlens.view.tabs.overview.screen import ACTIONS, overview
from tests.report.sample import sample_report, span, training_target

HERE = span("self.up(x)")
LARGE = Diagnostic("AL301", "information", "`h` keeps 6 MiB", HERE, cost=Cost("peak bytes", 6 << 20, 0.6))
COPIED = Diagnostic("AL101", "warning", "`cache` is copied", HERE, cost=Cost("bytes per call", 1 << 20, 0.1))
SMALL = Diagnostic("AL301", "information", "`b` keeps 8 KiB", HERE, cost=Cost("peak bytes", 8 << 10, 0.001))
WRONG = Diagnostic("AL701", "error", "`f` differs from eager", HERE)
EAGER = Diagnostic("AL402", "warning", "`g` runs in eager", HERE)
NOTE = Diagnostic("AL203", "information", "4 outputs are views", HERE)


def report_of(*diagnostics: Diagnostic, dynamo: Dynamo | None = None) -> Report:
    target = replace(training_target(), diagnostics=diagnostics)
    return replace(sample_report(), targets=(target,), diagnostics=(), dynamo=dynamo)


def test_what_is_wrong_comes_first_then_what_is_worth_most() -> None:
    actions = what_to_do(report_of(NOTE, SMALL, COPIED, LARGE, EAGER, WRONG))
    assert [action.diagnostic for action in actions] == [WRONG, EAGER, LARGE, COPIED]
    assert [action.gain for action in actions] == [
        "",
        "",
        "6.0 MiB of the peak",
        "1.0 MiB copied on each call",
    ]


def test_at_most_five_and_each_once() -> None:
    many = tuple(replace(WRONG, message=f"`f{number}` differs") for number in range(9))
    report = report_of(*many)
    assert len(what_to_do(report)) == MOST_ACTIONS
    twice = replace(report, targets=(*report.targets, *report.targets))
    assert what_to_do(twice) == what_to_do(report)


def test_recompilations_are_ranked_by_their_share_of_the_compile_time() -> None:
    function = DynamoFunction("step", "step", HERE, calls=9, limit_hit=True)
    dynamo = Dynamo((function,), CompileSeconds(4.0, 4.0))
    actions = what_to_do(report_of(LARGE, dynamo=dynamo))
    assert [(action.code, action.sentence) for action in actions] == [
        ("AL405", "code in eager: recompile limit in step"),
        ("AL301", LARGE.message),
    ]


def recompiled(*causes: Cause) -> Dynamo:
    """One second for each cause."""
    entries = tuple(
        Compilation(f"0/{number}", "", (), Seconds(1.0, 0.0, 1.0), cause)
        for number, cause in enumerate(causes, 1)
    )
    function = DynamoFunction("step", "step", HERE, calls=9, compilations=entries)
    return Dynamo((function,), CompileSeconds(4.0, 4.0))


def test_edits_are_named_where_there_are_some_to_try() -> None:
    lengths = Cause("len(cache) == 1", "length", "len(cache)", "1", "2", HERE, None, "0/0")
    dtypes = Cause("x is float32", "dtype", "x.dtype", "float32", "float64", HERE, None, "0/0")
    actions = what_to_do(report_of(dynamo=recompiled(lengths, dtypes)))
    assert sorted(action.cure.startswith("`aotlens why --try-fixes`: ") for action in actions) == [
        False,
        True,
    ]


def test_a_second_compilation_for_no_grad_is_not_an_action() -> None:
    once = Cause("grad mode is disabled", "mode", "grad mode", "disabled", "enabled", HERE, None, "0/0")
    assert what_to_do(report_of(dynamo=recompiled(once))) == ()
    assert len(what_to_do(report_of(dynamo=recompiled(once, once)))) == 1


def test_the_text_says_what_it_is_worth_and_what_tries_it() -> None:
    text = to_text(action_lines(report_of(LARGE, WRONG), Page(90)))
    assert text.splitlines() == [
        "What to do first",
        "  1. AL701  tests/report/sample_model.py:22:34",
        "     `f` differs from eager",
        "     → `aotlens verify` finds the node",
        "  2. AL301  tests/report/sample_model.py:22:34  6.0 MiB of the peak",
        "     `h` keeps 6 MiB",
        "     → in `aotlens tui`, `f` on the Saved tab tries it",
        "",
    ]


def test_the_first_screen_says_that_there_is_nothing_to_do() -> None:
    report = report_of(NOTE)
    title, line, *_ = overview(report, report.targets[0]).lines()
    assert (title.text, line.text.strip()) == (ACTIONS, NOTHING_TO_DO)
    assert ACTIONS not in overview(replace(report, targets=()), report.targets[0]).lines()[0].text


def test_a_small_first_screen_cuts_everything_but_the_first_thing_to_do() -> None:
    report = report_of(WRONG, LARGE)
    first, *others = overview(report, report.targets[0]).lines(room=10)
    assert first.text.split() == ["do", "first", "1.", *first.text.split()[3:]]
    assert first.wrap
    assert not any(line.wrap for line in others[:6])


def test_one_finding_of_one_target_is_not_said_twice() -> None:
    assert list(action_lines(report_of(WRONG), Page(90))) == []


def test_a_one_letter_function_is_named_although_the_title_has_its_letter() -> None:
    lengths = Cause("len(cache) == 1", "length", "len(cache)", "1", "2", HERE, None, "0/0")
    dynamo = recompiled(lengths)
    (function,) = dynamo.functions
    (action,) = what_to_do(report_of(dynamo=replace(dynamo, functions=(replace(function, qualname="h"),))))
    assert action.sentence.startswith("recompilations: len(cache) changes: 1 recompilation in h")
