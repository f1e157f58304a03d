"""Optimizer steps and whole training steps through Dynamo follow eager, step by step."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotlens.frontends.dynamo import dynamo_backend
from aotlens.observe import observing
from aotlens.options import CompileOptions

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of its own deprecations

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "sgd_foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, 0.1),
    "adam_foreach": lambda p: torch.optim.Adam(p, 0.1, foreach=True),
    "adam_fused": lambda p: torch.optim.Adam(p, 0.1, fused=True),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, 0.1, amsgrad=True),
    "adamw_tensor_rate": lambda p: torch.optim.AdamW(p, torch.tensor(0.1)),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.9),
}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend=dynamo_backend(CompileOptions(backend="eager")))


def trained(make: MakeOptimizer, compiling: Callable[..., Any]) -> list[Tensor]:
    """The parameters after some steps under a schedule, with `optimizer.step` compiled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    step = compiling(optimizer.step)
    for _ in range(4):
        loss = model(torch.randn(3, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        step()
        schedule.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.rotates
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_step(name: str) -> None:
    expected = trained(OPTIMIZERS[name], lambda function: function)
    found = trained(OPTIMIZERS[name], compiled)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)  # Dynamo writes some steps as fma


def whole_step(compiling: Callable[..., Any]) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    train = compiling(step)
    losses = [train(torch.randn(6, 4)) for _ in range(4)]
    return [*losses, *(tensor.detach() for tensor in (*model.parameters(), *model.buffers()))]


def test_whole_training_step() -> None:
    torch.testing.assert_close(whole_step(compiled), whole_step(lambda function: function))


@pytest.mark.rotates
def test_whole_training_step_with_compiled_autograd() -> None:
    with torch._dynamo.config.patch(compiled_autograd=True):
        found = whole_step(compiled)
    torch.testing.assert_close(found, whole_step(lambda function: function))


@pytest.mark.rotates
def test_names_of_what_an_optimizer_writes() -> None:
    seen: list[Any] = []
    with observing(on_compiled=seen.append):
        trained(OPTIMIZERS["sgd_momentum"], compiled)
    names = [given.slot.name for given in seen[-1].captured.inputs]
    assert "self.param_groups[0]['params'][0]" in names
    assert "self.state[0]['momentum_buffer']" in names


@pytest.mark.rotates
def test_names_of_the_state_that_an_optimizer_makes() -> None:
    seen: list[Any] = []
    with observing(on_compiled=seen.append):
        trained(OPTIMIZERS["adam"], compiled)
    names = {given.slot.name for one in seen for given in one.captured.inputs if "state" in given.slot.name}
    of_one = ("step", "exp_avg", "exp_avg_sq")
    assert names == {f"self.state[{at}]['{key}']" for at in range(4) for key in of_one}
