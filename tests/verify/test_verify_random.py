"""The comparison of functions that use random numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from aotlens.options import CompileOptions
from aotlens.session.collector import Collector
from aotlens.session.compile_router import CompileRouter, intercepting_compile
from aotlens.session.verify import Verifier
from aotlens.verify import verify_with
from aotlens.verify.double_precision import WITHOUT_WRITES, in_double
from aotlens.verify.observe import Observation, TensorFacts, observe_alone
from aotlens.verify.random_numbers import NOT_COMPARED
from aotlens.verify.tensors.prepared_call import copies, prepare_call
from aotlens.verify.tensors.same_numbers import RandomRecorder, RandomResult
from tests.programs.program import leaf, plain

aten = torch.ops.aten


def noisy(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w + torch.randn_like(x)).relu()


def test_inductors_own_numbers_are_no_difference() -> None:
    """Inductor computes other normal numbers than eager, so the code with eager's is compared."""
    collector = Collector(__file__)
    with collector.listening():
        verification = verify_with(CompileOptions(), noisy, (plain(4, 4), leaf(4, 4)), {})
    assert verification.ok, verification.summary()
    assert (verification.gradients, verification.fresh_rounds) == (1, 1)
    assert verification.notes == (NOT_COMPARED,)
    assert len(collector.compiled) == 1  # the second compilation is not the user's


def test_a_graph_of_dynamos_with_inductors_own_numbers() -> None:
    torch._dynamo.reset()
    collector, options = Collector(__file__), CompileOptions()
    verifier = Verifier(collector, options)
    router = CompileRouter(options, collector, around=verifier.around, before_direct=verifier.before_direct)
    with collector.listening(), intercepting_compile(router):
        torch.compile(noisy, dynamic=True)(plain(4, 4), leaf(4, 4)).sum().backward()
    (verdict,) = verifier.verdicts()
    assert verdict.outcome == "equal", verdict.text
    assert verdict.details == (NOT_COMPARED,)


def test_random_numbers_do_not_hide_a_difference() -> None:
    """A rule for a gradient that is wrong stays wrong with eager's numbers."""

    def wrong_tanh(x: Tensor) -> Tensor:
        return x.sinh() / x.cosh() * 1.01

    options = CompileOptions(decompositions={aten.tanh.default: wrong_tanh})
    verification = verify_with(options, lambda x: (x + torch.randn_like(x)).tanh(), (plain(4, 4),), {})
    assert verification.outcome == "differs"
    assert verification.differences[0].max_rel is not None
    assert verification.differences[0].max_rel < 0.02  # not by other random numbers


def noisy_by_itself(x: Tensor) -> Tensor:
    return noisy(x, x)


def drawing_inside(x: Tensor) -> Tensor:
    return functional.rrelu(x, 0.1, 0.9, training=True)


def dropout(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.5)


def native_dropout(x: Tensor) -> Tensor:
    return aten.native_dropout.default(x, 0.5, True)[0]


def in_place(x: Tensor) -> Tensor:
    return x * torch.empty_like(x).uniform_(-1, 1)


def of_another_dtype(x: Tensor) -> Tensor:
    return x * torch.randint_like(x, 5) + torch.rand(8, 8).bfloat16() + torch.randperm(8)


def both(fn: Callable[..., Tensor], x: Tensor) -> tuple[Observation, list[RandomResult], Observation | None]:
    """The call, what it drew, and the call in double precision."""
    called = prepare_call(fn, (x,))
    torch.manual_seed(0)
    with RandomRecorder() as drawing:
        (own,) = copies(called, 1)
        observation = observe_alone(own, WITHOUT_WRITES)
    torch.manual_seed(1)  # the numbers are replayed, not drawn again
    return observation, drawing.numbers, in_double(called, fn, drawing.numbers)


def value_and_gradient(observation: Observation) -> tuple[Tensor, Any]:
    (output,) = observation.outputs
    assert isinstance(output, TensorFacts)
    assert observation.gradients is not None
    ((_, gradient),) = observation.gradients.leaves
    return output.value, gradient


@pytest.mark.parametrize("fn", [dropout, native_dropout, in_place, noisy_by_itself])
def test_the_reference_has_the_same_numbers(fn: Callable[..., Tensor]) -> None:
    single, _, double = both(fn, leaf(8, 8))
    assert double is not None
    for actual, expected in zip(value_and_gradient(double), value_and_gradient(single), strict=True):
        assert actual.dtype == torch.float64
        torch.testing.assert_close(actual, expected.double(), rtol=1e-4, atol=1e-5)


def test_numbers_of_several_dtypes() -> None:
    single, numbers, double = both(of_another_dtype, leaf(8, 8))
    assert len(numbers) >= 3
    assert double is not None
    torch.testing.assert_close(
        value_and_gradient(double)[0], value_and_gradient(single)[0].double(), rtol=1e-2, atol=1e-2
    )


def test_no_reference_where_drawing_is_part_of_an_operator() -> None:
    *_, double = both(drawing_inside, leaf(8, 8))
    assert double is None
