"""The search for fixes: each candidate alone, then together, on runs whose results follow from the text."""

from collections.abc import Mapping

from aotlens.fixes.search import Attempt, Limits, find_fixes
from aotlens.model.dynamo import Break, Compilation, Dynamo, DynamoFunction, Seconds
from aotlens.model.recompilations import Cause
from aotlens.model.source import Span

FILE = "script.py"
PRINT, ITEM = "print(x)", "x.sum().item()"
BREAKS = f"""\
import torch


def f(x):
    {PRINT}
    return x * {ITEM}


f(x)
"""
NUMBERS = """\
import torch


@torch.compile
def f(x, a, b):
    return x * a + b


f(x, 2, 3)
"""
REORDERED, DETACHED = "functions.add(print)", "x.sum().detach()"


def broken(text: str) -> Dynamo:
    """One break for each expression that is there and not edited."""
    codes = {PRINT: "GB0059", ITEM: "GB0124"}
    breaks = []
    for number, line in enumerate(text.splitlines(), 1):
        for expression, code in codes.items():
            is_moved = expression == PRINT and REORDERED in text
            if expression in line and not is_moved:
                col = line.index(expression)
                span = Span(FILE, number, col, number, col + len(expression))
                breaks.append(Break(span, expression, code, "", "", "graph split"))
    return dynamo(text, breaks=tuple(breaks), compilations=compilations(len(breaks)))


def recompiled(text: str) -> Dynamo:
    """One recompilation, for the first of the two numbers that is no tensor."""
    numbers = [name for name, value in (("a", "2"), ("b", "3")) if f"tensor({value})" not in text]
    return dynamo(text, compilations=compilations(1, numbers[:1]))


def compilations(count: int, causes: list[str] | None = None) -> tuple[Compilation, ...]:
    made = [Compilation(f"{number}/0", "", (), Seconds(1, 0, 1), None) for number in range(count + 1)]
    if causes is not None:
        made = made[:1]
        for name in causes:
            cause = Cause(f"{name} == 2", "number", name, "2", "3", None, None)
            made.append(Compilation("0/1", "", (), Seconds(1, 0, 1), cause))
    return tuple(made)


def dynamo(text: str, **facts: object) -> Dynamo:
    line = next(number for number, code in enumerate(text.splitlines(), 1) if code.startswith("def f"))
    return Dynamo((DynamoFunction("f", "f", Span(FILE, line, 0, line, 0), None, **facts),))  # type: ignore[arg-type]


def text_of(texts: Mapping[str, str]) -> str:
    return texts[FILE]


def test_each_fix_has_a_run_of_its_own_and_all_of_them_one_together() -> None:
    result = find_fixes(
        lambda texts: Attempt(broken(text_of(texts)), "", "1 call"), broken(BREAKS), {FILE: BREAKS}
    )
    outcomes = [entry.outcome for entry in result.fixes if entry.outcome is not None]
    assert [(outcome.breaks_before, outcome.breaks_after, outcome.together) for outcome in outcomes] == [
        (2, 1, 1),
        (2, 1, 1),
    ]
    assert result.together is not None
    assert (result.together.breaks_after, result.together.together, result.runs) == (0, 2, 3)


def test_a_fix_that_fails_with_the_others_is_offered_and_not_written() -> None:
    def run(texts: Mapping[str, str]) -> Attempt:
        text = text_of(texts)
        differs = "the output differs from eager" if REORDERED in text and DETACHED in text else ""
        return Attempt(broken(text), differs, "1 call")

    result = find_fixes(run, broken(BREAKS), {FILE: BREAKS})
    assert [(entry.target, entry.passed, entry.conflict) for entry in result.fixes if entry.passed] == [
        (PRINT, True, ""),
        (ITEM, True, "the output differs from eager"),
    ]
    assert result.together is not None
    assert result.together.together == 1
    assert DETACHED not in result.texts[FILE]


def test_fixes_that_save_nothing_alone_pass_where_they_do_together() -> None:
    """The two numbers change in the same calls, so that a tensor for one of them removes no compilation."""

    def run(texts: Mapping[str, str]) -> Attempt:
        return Attempt(recompiled(text_of(texts)), "", "1 call")

    result = find_fixes(run, recompiled(NUMBERS), {FILE: NUMBERS})
    outcomes = [(entry.target, entry.outcome.together) for entry in result.fixes if entry.outcome is not None]
    assert outcomes == [("b", 2), ("a", 2)]
    assert "f(x, torch.tensor(2), torch.tensor(3))" in result.texts[FILE]
    assert result.together is not None
    assert (result.together.compilations_before, result.together.compilations_after) == (2, 1)


def test_what_the_limit_of_runs_leaves_untried_is_said() -> None:
    def run(texts: Mapping[str, str]) -> Attempt:
        return Attempt(broken(text_of(texts)), "", "1 call")

    result = find_fixes(run, broken(BREAKS), {FILE: BREAKS}, Limits(runs=1))
    assert not result.is_complete
    assert [entry.target for entry in result.fixes if entry.passed] == [PRINT]
