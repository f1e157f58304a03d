"""`aotlens.verify` and what the session calls, on compiled functions."""

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify import verify_first_call, verify_with
from tests.programs.program import leaf, plain

EAGER = CompileOptions(backend="eager")


def scaled_sum(x: Tensor, w: Tensor, *, bias: float = 0.5) -> dict[str, Tensor]:
    x.add_(1)
    return {"out": (x * w).sum() + bias, "row": x[0]}


@pytest.mark.rotates
def test_package_is_the_function_too() -> None:
    verdict = aotlens.verify(scaled_sum, plain(2, 3), leaf(2, 3))
    assert verdict.ok, verdict.differences
    assert verdict.summary().startswith("equal: 2 values, 1 gradient, 1 mutated input")


def test_arguments_and_module_are_left_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    x = plain(5, 3)
    torch.set_rng_state(random_state)

    verdict = verify_with(EAGER, model, (x,), {})

    assert verdict.ok, verdict.differences
    assert verdict.mutated == 3
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


class Memory(nn.Module):
    """Keeps a running mean with its gradient, as recurrent memories do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.memory: Tensor
        self.register_buffer("memory", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.linear(x).tanh()
        self.memory.mul_(0.9).add_(hidden.mean(0))
        return hidden + self.memory


def test_each_round_starts_from_a_buffer_without_a_gradient() -> None:
    verdict = verify_with(EAGER, Memory(), (plain(5, 3),), {})
    assert verdict.ok, verdict.summary()
    assert (verdict.fresh_rounds, verdict.mutated) == (1, 1)


def test_keyword_arguments() -> None:
    verdict = verify_with(EAGER, scaled_sum, (plain(2, 3), leaf(2, 3)), {"bias": 2.0})
    assert verdict.ok, verdict.differences


def test_broken_graph_is_found_with_the_users_names() -> None:
    x, w = plain(3), leaf(3)
    right = compile_direct(lambda x, w: x * w, (x, w), {}, EAGER).call
    wrong = compile_direct(lambda x, w: x * w * 1.01, (x, w), {}, EAGER).call
    assert verify_first_call(right, lambda x, w: x * w, [x, w], ["x", "model.w"]).ok
    verdict = verify_first_call(wrong, lambda x, w: x * w, [x, w], ["x", "model.w"])
    assert [(found.kind, found.name) for found in verdict.differences] == [
        ("value", "out"),
        ("gradient", "model.w"),
    ]


def test_a_write_that_only_eager_refuses_is_noted() -> None:
    def gated(x: Tensor) -> tuple[Tensor, Tensor]:
        left, right = (x * 2).chunk(2)
        return left, right.exp()

    verdict = verify_with(EAGER, gated, (leaf(4, 3),), {})
    assert verdict.ok, verdict.differences
    assert verdict.notes == ("out[0] can be written in place, which eager does not allow",)


def test_gradients_that_a_step_leaves_otherwise_differ() -> None:
    def step(x: Tensor) -> tuple[Tensor, ...]:
        x.square().sum().backward()
        return ()

    def twice(x: Tensor) -> tuple[Tensor, ...]:
        x.square().sum().mul(2).backward()
        return ()

    verdict = verify_first_call(twice, step, [leaf(3)], ["x"])
    assert [(found.kind, found.name) for found in verdict.differences] == [("value", "x.grad")]
