"""Which differences from eager are rounding."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch
from torch.nn import functional

from aotlens.verify import Verification
from aotlens.verify.compare import Difference, compare
from aotlens.verify.double_precision import in_double
from aotlens.verify.gradients import Gradients
from aotlens.verify.last_digit import in_changed_digits
from aotlens.verify.observe import Observation, TensorFacts, observe_alone
from aotlens.verify.rounding import double_reference, last_digit_reference, without_rounding_differences
from aotlens.verify.rounds import Side, Sides, judge
from aotlens.verify.tensors.prepared_call import prepare_call, state_of
from aotlens.verify.tensors.values import same_non_finite


def _judged(
    verification: Verification, sides: tuple[Observation, Observation], wide: Observation
) -> Verification:
    return without_rounding_differences(verification, sides, double_reference(sides[1], wide))


def test_the_reference_is_in_double_precision_behind_casts_too() -> None:
    def island(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        hidden = functional.linear(x, weight.bfloat16())
        return functional.linear(hidden.float(), weight) + torch.ones(1, dtype=torch.float32)

    weight = torch.randn(8, 8, requires_grad=True)
    reference = in_double(prepare_call(island, (torch.randn(2, 8, dtype=torch.bfloat16), weight)), island)
    assert reference is not None
    assert (reference.failure, reference.backward_failure) == (None, None)
    (output,) = reference.outputs
    assert isinstance(output, TensorFacts)
    assert output.value.dtype == torch.float64


def test_several_roundings_are_one_note() -> None:
    def side(error: float) -> Observation:
        leaves = tuple((name, torch.ones(4) + error) for name in ("first", "second"))
        return Observation(None, gradients=Gradients((), leaves))

    differing = tuple(Difference("gradient", name, "1.002", "1.001", 1e-3) for name in ("first", "second"))
    verification = Verification(differing, values=0, gradients=2, mutated=0, max_error=1e-3)
    judged = _judged(verification, (side(2e-3), side(1e-3)), side(0.0))
    assert judged.ok
    assert len(judged.notes) == 1
    assert judged.notes[0].startswith("2 values that differ are as near to float64 as eager's: gradient of ")


@pytest.mark.parametrize(
    ("ours", "eagers", "is_rounding"),
    [
        (2e-6, 1e-6, True),  # noise beside noise
        (1e-5, 1e-6, False),  # ten times eager's own error
        (1e-3, 1e-3, False),  # as near as eager, whose own error is no rounding beside gradients of size 1
    ],
)
def test_a_gradient_that_cancels_out_is_held_against_the_others(
    ours: float, eagers: float, is_rounding: bool
) -> None:
    def side(bias: float) -> Observation:
        leaves = (("bias", torch.tensor([bias])), ("weight", torch.ones(4)))
        return Observation(None, gradients=Gradients((), leaves))

    difference = Difference("gradient", "bias", f"{ours}", f"{eagers}", abs(ours - eagers))
    verification = Verification((difference,), values=0, gradients=2, mutated=0, max_error=abs(ours - eagers))
    judged = _judged(verification, (side(ours), side(eagers)), side(0.0))
    assert bool(judged.differences) is not is_rounding


@pytest.mark.parametrize(("ours", "is_rounding"), [(0.9e-4, True), (1.1e-4, False)])
def test_a_gradient_whose_error_is_negligible_beside_its_largest_value(
    ours: float, is_rounding: bool
) -> None:
    """Batch norm's sums, which eager adds up in double precision on the CPU."""

    def side(error: float) -> Observation:
        gradient = torch.tensor([10.0, 0.1], dtype=torch.float64) + torch.tensor([0.0, error * 10])
        return Observation(None, gradients=Gradients((), (("weight", gradient),)))

    difference = Difference("gradient", "weight", "0.1009", "0.1", ours * 10)
    verification = Verification((difference,), values=0, gradients=1, mutated=0, max_error=ours * 10)
    judged = _judged(verification, (side(ours), side(1e-6)), side(0.0))
    assert bool(judged.differences) is not is_rounding
    note = "gradient of weight is off from float64 by 9e-05 of its largest value, eager's by 1e-06"
    assert judged.notes == ((note,) if is_rounding else ())


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_value_that_only_the_compiled_call_has_not_finite_is_no_rounding(wrong: float) -> None:
    def side(first: float, second: float) -> Observation:
        return Observation(None, gradients=Gradients((), (("weight", torch.tensor([first, second])),)))

    difference = Difference("gradient", "weight", f"[1, {wrong}]", "[1, 2]", 0.0)
    verification = Verification((difference,), values=0, gradients=1, mutated=0, max_error=0.0)
    judged = _judged(verification, (side(1.0, wrong), side(1.0, 2.0)), side(1.0, 2.0))
    assert judged.differences == (difference,)


@pytest.mark.parametrize(("ours", "is_rounding"), [(1e-2, True), (5e-2, False)])
def test_a_gradient_that_eager_has_exactly_by_chance_is_held_against_eagers_usual_error(
    ours: float, is_rounding: bool
) -> None:
    def side(bias: float, others: float) -> Observation:
        names = ("first", "second", "third")
        leaves = tuple((name, torch.ones(4) + others) for name in names)
        return Observation(None, gradients=Gradients((), (("bias", torch.ones(2) + bias), *leaves)))

    difference = Difference("gradient", "bias", f"{1 + ours}", "1.0001", ours)
    verification = Verification((difference,), values=0, gradients=4, mutated=0, max_error=ours)
    judged = _judged(verification, (side(ours, 4e-3), side(1e-4, 5e-3)), side(0.0, 0.0))
    assert bool(judged.differences) is not is_rounding


def quantized(x: torch.Tensor) -> torch.Tensor:
    """Like torchao's layers, which reject double precision."""
    if x.dtype != torch.float32:
        raise TypeError(f"unsupported dtype: {x.dtype}")
    return torch.round(x * 127) * 0.02


@pytest.mark.parametrize(("steps", "is_rounding"), [(1, True), (4, False)])
def test_a_value_next_to_a_step_is_rounding_where_eager_moves_as_far(steps: int, is_rounding: bool) -> None:
    called = prepare_call(quantized, (torch.cat([torch.full((8,), 0.5), torch.ones(8) * 127]) / 127,))
    assert double_reference(Observation(None), in_double(called, quantized)) is None
    reference = last_digit_reference(eager := observe_alone(called), in_changed_digits(called, quantized))
    (output,) = eager.outputs
    assert isinstance(output, TensorFacts)
    value = output.value.clone()
    value[0] += 0.02 * steps
    ours = replace(eager, outputs=(replace(output, value=value),))
    verification = compare(ours, eager)
    assert [difference.kind for difference in verification.differences] == ["value"]
    judged = without_rounding_differences(verification, (ours, eager), reference)
    assert bool(judged.differences) is not is_rounding
    note = "value of out differs by 0.02, and eager's own by 0.02 when its inputs change in their last digit"
    assert judged.notes == ((note,) if is_rounding else ())


def test_a_function_without_steps_explains_no_larger_error() -> None:
    called = prepare_call(torch.sin, (torch.randn(64),))
    eager = observe_alone(called)
    reference = last_digit_reference(eager, in_changed_digits(called, torch.sin))
    assert reference is not None
    assert max(reference.eagers_errors.values()) < 1e-6


@pytest.mark.parametrize(
    ("ours", "is_same"), [([1.0, inf, nan], True), ([1.0, -inf, nan], False), ([inf, inf, nan], False)]
)
def test_infinities_have_a_sign(ours: list[float], is_same: bool) -> None:
    assert same_non_finite(torch.tensor(ours), torch.tensor([2.0, inf, nan])) is is_same


def test_calls_that_tell_rounding_from_errors_restore_what_the_function_holds() -> None:
    norm = torch.nn.BatchNorm1d(4)

    def normalized(x: torch.Tensor) -> torch.Tensor:
        return norm(x.bfloat16().float())

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return normalized(x) * 1.5

    state = state_of(normalized)
    before = [tensor.clone() for tensor in state]
    called = prepare_call(normalized, (torch.randn(6, 4),))
    sides = Sides(called, Side(normalized, normalized), Side(wrong, wrong), state)
    assert judge(sides, fresh=0).verification.differences
    assert all(map(torch.equal, state, before))
