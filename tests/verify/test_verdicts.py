"""A verdict is `equal` only where everything was compared; else it is `not verified`, with the reason."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.diagnostics.correctness import with_verdict
from aotlens.model.eager import NotCompiled, NotCompiledCause
from aotlens.model.report import Target
from aotlens.model.source import Outcome, Span, Verdict
from aotlens.options import CompileOptions
from aotlens.session.collector import Collector
from aotlens.session.compile_router import CompileRouter, intercepting_compile
from aotlens.session.verify import CALLS, NOT_CALLED, Verifier
from aotlens.verify import Verification, targets, verify_with
from aotlens.view.verdicts import exit_code_of, verdict_of
from tests.programs.program import leaf, plain

EAGER = CompileOptions(backend="eager")


def judged(fn: Callable[..., Any], *args: Any) -> Verification:
    return verify_with(EAGER, fn, args, {})


def verdicts_of(run: Callable[[], None]) -> list[Verdict]:
    """Of what the function gives to `torch.compile`, with `--verify`."""
    torch._dynamo.reset()
    collector = Collector(__file__)
    verifier = Verifier(collector, EAGER)
    router = CompileRouter(EAGER, collector, around=verifier.around, before_direct=verifier.before_direct)
    with collector.listening(), intercepting_compile(router):
        run()
    return verifier.verdicts()


def test_a_call_that_eager_refuses_is_not_verified() -> None:
    verification = judged(lambda x: x[torch.tensor([5])], plain(3))
    assert verification.verdict() == Verdict(
        "not verified", "eager raises IndexError: index 5 is out of bounds for dimension 0 with size 3"
    )
    assert not verification.ok


def test_a_backward_that_eager_refuses_is_not_verified() -> None:
    def overwritten(x: Tensor) -> Tensor:
        y = x.exp()
        z = y * 2
        y.add_(1)
        return z + y

    verification = judged(overwritten, leaf(3))
    assert verification.outcome == "not verified"
    assert verification.gradients == 0
    assert verification.summary().startswith(
        "not verified (the backward was not compared because it raises RuntimeError: one of the variables"
    )


@pytest.mark.rotates
def test_gradients_that_lead_to_no_input_are_not_verified() -> None:
    made = [leaf(3).exp()]

    def far(x: Tensor) -> Tensor:
        return x + made[0]

    verification = aotlens.verify(far, plain(3))
    assert verification.outcome == "not verified", verification.summary()


def test_inference_is_equal_without_gradients() -> None:
    assert judged(lambda x: x.argmax(), leaf(3)).summary().startswith("equal: 1 value, 0 gradients")


def test_a_later_call_is_compared_where_the_first_could_not_be() -> None:
    def run() -> None:
        look_up = torch.compile(lambda table, index: table[index] * 2)
        table = leaf(3)
        with pytest.raises(IndexError):
            look_up(table, torch.tensor([7]))
        look_up(table, torch.tensor([1])).sum().backward()

    (verdict,) = verdicts_of(run)
    assert verdict.headline.startswith("equal: 1 value, 1 gradient")


def test_calls_are_compared_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def failing(*args: Any) -> Any:
        compared.append(1)
        raise NotImplementedError("no copy of this tensor\nin several lines")

    monkeypatch.setattr(targets, "check_graph", failing)

    def run() -> None:
        doubled = torch.compile(lambda x: x * 2)
        for _ in range(CALLS + 2):
            assert torch.equal(doubled(torch.ones(3)), torch.full((3,), 2.0))

    text = "the comparison failed with NotImplementedError: no copy of this tensor"
    assert verdicts_of(run) == [Verdict("not verified", text)]
    assert len(compared) == CALLS


def test_what_is_compiled_and_never_called() -> None:
    collector = Collector(__file__)
    verifier = Verifier(collector, EAGER)
    with collector.listening():
        aotlens.pipeline.compile_direct(lambda x: x * 2, (plain(3),), {}, EAGER)
    assert verifier.verdicts() == [NOT_CALLED]
    assert NOT_CALLED.headline == (
        "not verified (was compiled but not called, so there was no call to compare)"
    )


@pytest.mark.parametrize(
    ("outcomes", "codes"),
    [
        ([], (0, 0)),
        (["equal", "equal"], (0, 0)),
        (["equal", "not verified"], (1, 0)),
        (["differs", "not verified"], (1, 1)),
    ],
)
def test_exit_codes(outcomes: list[Outcome], codes: tuple[int, int]) -> None:
    verdicts = [Verdict(outcome, "") for outcome in outcomes]
    assert (exit_code_of(verdicts, False), exit_code_of(verdicts, True)) == codes


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("rest of function", "ran in eager (rest of function) at net.py:9: no GRU"),
        ("unsupported", "ran in eager (unsupported) at net.py:9: no GRU"),
        ("not called", "was not called at net.py:9: no GRU"),
        ("graph break", None),
        ("other backend", None),
    ],
)
def test_what_ran_in_eager_is_not_verified(cause: NotCompiledCause, text: str | None) -> None:
    record = NotCompiled("Net", "Net.forward", cause, "no GRU", "AL405", Span("net.py", 9, 4, 9, 8))
    assert verdict_of(record) == (None if text is None else Verdict("not verified", text))


def test_anything_but_equal_is_the_first_finding() -> None:
    target = Target("step", "step", "direct", "training", None)
    codes = {
        outcome: [found.code for found in with_verdict(target, Verdict(outcome, "why")).diagnostics]
        for outcome in ("equal", "differs", "not verified")
    }
    assert codes == {"equal": [], "differs": ["AL701"], "not verified": ["AL703"]}
