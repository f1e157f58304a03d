"""Saved bytes, to the byte: what the partition says beside what the autograd node holds after the call."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotlens.errors import AotlensError
from aotlens.options import CompileOptions
from aotlens.partition.storages import depends_on_data
from aotlens.pipeline import Compiled, compile_direct
from aotlens.torch_api import has_saved_tensor_hooks
from aotlens.verify.first_call import observe_alone
from aotlens.verify.left import held_tensors, new_tensors
from aotlens.verify.world import World, named_tensors, world
from benchmarks.models import CONV_NET, Model, gpt_model
from examples.batchnorm_cnn import ShapeNet
from examples.train_gpt import GPT, Config
from tests.engine.checking import prepared
from tests.engine.held import held_beyond, owned_by_the_caller, storages
from tests.programs import PROGRAMS, Program

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

POLICIES = ("min-cut", "default")
POLICY = pytest.mark.parametrize("policy", POLICIES)


def compiled(given: World, policy: str, dynamic: bool = False) -> Compiled:
    return compile_direct(
        given.fn, given.args, {}, CompileOptions(backend="eager", policy=policy, dynamic=dynamic)
    )


def held_bytes(found: Compiled, given: World) -> int:
    """Bytes of the storages that the node holds beyond the caller's own, after one call."""
    owned = owned_by_the_caller(given.fn, given.args, {})
    old = {id(item.tensor) for item in held_tensors(given)}
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # whatever mode the call leaves behind
        result = found.call(*given.args)
    result = [result, [item.tensor for item in new_tensors(given, old)]]
    inputs = [item.tensor for item in named_tensors(given.fn, given.args, {})]
    held = held_beyond(found, owned | storages(inputs), result, inputs)
    return sum(held.values())


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def keeping_what_hooks_get() -> AbstractContextManager[Any]:
    """Where the caller has hooks on saved tensors, others that keep each as it is."""
    if not has_saved_tensor_hooks():
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(as_it_is, as_it_is)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_saved_bytes_are_what_the_node_holds(program: Program) -> None:
    """With both policies where they may part: in training, but for the grid, which is about the wrapper."""
    refused = 0
    for dynamic in (False, True) if "dynamic" in program.tags else (False,):
        for policy in POLICIES[:1] if "grid" in program.tags else POLICIES:
            found = held_as_said(program, policy, dynamic)
            refused += found is None
            if found is None or found.parts.backward is None:
                break
    if refused:
        pytest.skip("refused, or raises as eager does")


def held_as_said(program: Program, policy: str, dynamic: bool) -> Compiled | None:
    """What was compiled and judged; None where it is refused, or raises as eager does."""
    with program.context(), keeping_what_hooks_get():
        _, given = prepared(program)
        try:
            found = compiled(given, policy, dynamic)
            held = held_bytes(found, given)
        except Exception as error:
            if not isinstance(error, AotlensError) and not observe_alone(prepared(program)[0]).failure:
                raise
            return None
    said = found.parts.saved_bytes
    assert said <= held if any(depends_on_data(value.node) for value in found.parts.saved) else said == held
    return found


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
    given = world(Mlp(), (torch.randn(8, 16, requires_grad=True),))
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


@POLICY
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_saved_bytes_of_models(model: Model, policy: str, dynamic: bool) -> None:
    given = world(model.make(), model.inputs())
    found = compiled(given, policy, dynamic)
    assert found.parts.saved_bytes == held_bytes(found, given)


def kept_copies(x: Tensor) -> Any:
    """A few elements of something large: the whole storage stays."""
    return (x @ x)[:1].sin().sum() + (x * 2).t()[0].exp().cos().sum()


@POLICY
def test_a_view_keeps_its_whole_storage(policy: str) -> None:
    given = world(kept_copies, (torch.randn(32, 32, requires_grad=True),))
    found = compiled(given, policy)
    assert found.parts.saved_bytes == held_bytes(found, given)
