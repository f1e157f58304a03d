"""The comparison itself: nothing differs where nothing was changed, and every kind of break is caught."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.verify import Verification, verify_first_call
from aotlens.verify.compare import compare
from aotlens.verify.observe import observe_alone
from aotlens.verify.tensors.prepared_call import copies, prepare_call
from tests.programs.program import leaf, plain, tape


def judged(eager: Callable[..., Any], broken: Callable[..., Any], *args: Any) -> Verification:
    eager_world, broken_world = copies(prepare_call(eager, args))
    expected = observe_alone(eager_world)
    return compare(observe_alone(broken_world, call=broken), expected)


def twice(x: Tensor) -> Tensor:
    return x * 2


def two_views(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    return made.view(-1), made.t()


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3


class BackwardMutates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        with torch.no_grad():
            ctx.x.add_(1)
        return grads[0] * 2


class BackwardFails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise ArithmeticError("no backward")


def fails(x: Tensor) -> Tensor:
    raise ValueError("broken")


def leaves_grad_mode_off(x: Tensor) -> Tensor:
    out = x * 2
    torch.set_grad_enabled(False)
    return out


def draws(x: Tensor) -> Tensor:
    torch.rand(1)
    return x * 2


def mutates(x: Tensor) -> Tensor:
    out = x * 2
    x.detach().add_(1)
    return out


def bumps(x: Tensor) -> Tensor:
    out = x * 2
    x.detach().add_(0)
    return out


BREAKS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Tensor]] = {
    "error": (twice, fails, leaf(3)),
    "structure": (twice, lambda x: [x * 2], leaf(3)),
    "value": (twice, lambda x: x * 2.001, leaf(3)),
    "mutation": (twice, mutates, leaf(3)),
    "dtype": (twice, lambda x: (x * 2).double(), leaf(3)),
    "shape": (twice, lambda x: (x * 2).view(3, 1), leaf(3)),
    "stride": (twice, lambda x: (x * 2).t().contiguous().t(), leaf(3, 4)),
    "offset": (lambda x: x[1:].detach(), lambda x: x[:2].detach(), torch.ones(3)),
    "requires_grad": (twice, lambda x: (x * 2).detach(), leaf(3)),
    "is_leaf": (twice, lambda x: (x * 2).detach().requires_grad_(), leaf(3)),
    "type": (lambda x: x, torch.nn.Parameter, leaf(3)),
    "identity": (lambda x: x, lambda x: x.view_as(x), tape(3)),
    "view": (lambda x: x.view(-1), lambda x: x.detach().view(-1), plain(3, 1)),
    "aliasing": (two_views, lambda x: ((x * 2).view(-1), (x * 2).t()), leaf(3, 4)),
    "version": (twice, bumps, plain(3)),
    "grad mode": (twice, leaves_grad_mode_off, leaf(3)),
    "random state": (twice, draws, leaf(3)),
    "gradient": (twice, WrongGradient.apply, leaf(3)),
    "backward error": (twice, BackwardFails.apply, leaf(3)),
    "backward mutation": (twice, BackwardMutates.apply, leaf(3)),
    "write": (lambda x: x.unbind(0), lambda x: (x[0], x[1]), tape(2, 3)),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_each_kind_of_break_is_named(kind: str) -> None:
    eager, broken, arg = BREAKS[kind]
    verdict = judged(eager, broken, arg)
    assert not verdict.ok
    assert kind in {difference.kind for difference in verdict.differences}, verdict.differences


def test_a_pending_collective_is_the_tensor_that_it_gives() -> None:
    """A compiled graph waits for its collectives; eager's results wait when they are used."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return AsyncCollectiveTensor(x * 2)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] * 2

    assert judged(Doubled.apply, twice, leaf(3, 4)).ok
    assert judged(lambda x: AsyncCollectiveTensor(x * 2), twice, plain(3, 4)).ok
    assert judged(lambda x: AsyncCollectiveTensor(x * 3), twice, plain(3, 4)).outcome == "differs"


def test_missing_gradient_is_a_difference() -> None:
    verdict = judged(lambda x, y: x * y, lambda x, y: x.detach() * y, leaf(3), leaf(3))
    assert [(found.kind, found.name, found.actual) for found in verdict.differences] == [
        ("gradient", "x", "None")
    ]


def test_flat_call_leaves_its_inputs_alone() -> None:
    torch.manual_seed(0)
    weight, buffer = leaf(3), torch.zeros(3)
    weight.grad = torch.ones(3)
    state, versions = torch.get_rng_state(), (weight._version, buffer._version)

    def step(w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        b.add_(w.detach())
        return (torch.nn.functional.dropout(w, 0.5) * b,)

    verdict = verify_first_call(step, step, [weight, buffer], names=["model.weight", "model.buffer"])

    assert verdict.ok
    assert verdict.summary() == "equal: 1 value, 1 gradient, 1 mutated input (max error 0)"
    assert torch.equal(state, torch.get_rng_state())
    assert (weight._version, buffer._version) == versions
    assert weight.grad.tolist() == [1.0, 1.0, 1.0]


def test_differences_carry_the_given_names() -> None:
    verdict = verify_first_call(
        lambda w, n: (w * n * 2,), lambda w, n: (w * n,), [leaf(3), 2], names=["model.weight", "n"]
    )
    assert [(found.kind, found.name) for found in verdict.differences] == [
        ("value", "out[0]"),
        ("gradient", "model.weight"),
    ]
    assert verdict.summary().startswith("differs: value of out[0]: compiled [")


def test_state_of_the_callables_is_put_back() -> None:
    model = torch.nn.BatchNorm1d(3)
    verdict = verify_first_call(model, model, [plain(4, 3)])
    assert verdict.ok
    assert model.running_mean is not None
    assert model.running_mean.tolist() == [0.0, 0.0, 0.0]
    assert model.num_batches_tracked is not None
    assert int(model.num_batches_tracked) == 0


def test_tolerance_grows_with_the_tensor_not_with_its_neighbours() -> None:
    assert judged(twice, lambda x: x * 2 * (1 + 1e-6), leaf(50)).ok
    assert not judged(lambda x: x, lambda x: x + torch.tensor([0, 0.01]), torch.tensor([1000.0, 1.0])).ok


def test_nan_equals_nan_and_infinity_its_own_sign() -> None:
    special = torch.tensor([float("nan"), float("inf"), 1.0])
    assert judged(lambda x: x + 0, lambda x: x * 1, special).ok
    assert not judged(lambda x: x + 0, lambda x: -x, special).ok


def test_two_inputs_under_one_name_are_compared_each_with_itself() -> None:
    verdict = verify_first_call(
        lambda w, v: ((w * 2).sum() + v.sum(),),
        lambda w, v: ((w * 2).sum() + (v * 3).sum(),),
        [leaf(3), leaf(2, 2)],
        names=["weight", "weight"],
    )
    assert [(found.kind, found.name) for found in verdict.differences] == [
        ("value", "out[0]"),
        ("gradient", "weight (2)"),
    ]


def test_an_input_named_as_the_result_is() -> None:
    def doubled(out: Tensor) -> Tensor:
        return out * 2

    verdict = verify_first_call(doubled, lambda out: out * 3, [leaf(3)], names=["out"])
    assert [(found.kind, found.name) for found in verdict.differences] == [
        ("value", "out (2)"),
        ("gradient", "out"),
    ]
