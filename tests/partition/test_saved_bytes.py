"""Saved bytes, to the byte: what the partition says beside what the autograd node holds after the call."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotlens.verify.tensors.prepared_call import prepare_call
from benchmarks.models import CONV_NET, Model, gpt_model
from examples.batchnorm_cnn import ShapeNet
from examples.train_gpt import GPT, Config
from tests.engine.judges.saved_bytes import POLICIES, compiled, held_bytes

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

POLICY = pytest.mark.parametrize("policy", POLICIES)


class Mlp(nn.Module):
    """Linear, GELU, Linear: 16 features, 32 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


@pytest.mark.parametrize(
    ("policy", "by_hand"),
    [
        ("min-cut", 8 * 32 * 4),  # what `up` gives; gelu is computed again from it
        ("default", 8 * 32 * 4 + 8 * 32 * 4),  # what `up` and what gelu give
    ],
)
def test_linear_gelu_linear_by_hand(policy: str, by_hand: int) -> None:
    """Beyond this the node holds only what others own: `x`, both weights; a bias is not needed."""
    given = prepare_call(Mlp(), (torch.randn(8, 16, requires_grad=True),))
    found = compiled(given, policy)
    assert (found.parts.saved_bytes, held_bytes(found, given)) == (by_hand, by_hand)
    owned = {value.owner.name for value in found.parts.saved if value.owner is not None}
    assert owned == {"x", "up.weight", "down.weight"}


def small_gpt() -> Model:
    """The GPT of the examples with its dropout: masks are saved."""
    config = Config(65, context=16, layers=3, width=32)
    return Model(
        "GPT with dropout", lambda: GPT(config), lambda: tuple(torch.randint(65, (2, 2, 16)).unbind())
    )


SHAPE_NET = Model("shape net", ShapeNet, lambda: (torch.randn(4, 1, 16, 16),))
MODELS = (gpt_model(3), CONV_NET, SHAPE_NET, small_gpt())


@pytest.mark.rotates
@POLICY
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_saved_bytes_of_models(model: Model, policy: str, dynamic: bool) -> None:
    given = prepare_call(model.make(), model.inputs())
    found = compiled(given, policy, dynamic)
    assert found.parts.saved_bytes == held_bytes(found, given)


def kept_copies(x: Tensor) -> Any:
    """A few elements of something large: the whole storage stays."""
    return (x @ x)[:1].sin().sum() + (x * 2).t()[0].exp().cos().sum()


@POLICY
def test_a_view_keeps_its_whole_storage(policy: str) -> None:
    given = prepare_call(kept_copies, (torch.randn(32, 32, requires_grad=True),))
    found = compiled(given, policy)
    assert found.parts.saved_bytes == held_bytes(found, given)
