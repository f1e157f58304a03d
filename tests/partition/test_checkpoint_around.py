"""`checkpoint()` around a compiled block: the same numbers as eager, with and without verification."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import aotlens
from aotlens.options import CompileOptions
from aotlens.session.collector import Collector
from aotlens.session.compile_router import CompileRouter, intercepting_compile
from aotlens.session.verify import Verifier

pytestmark = pytest.mark.filterwarnings("ignore")

Block = Callable[[Tensor], Tensor]
Form = Callable[[Block, Tensor], Tensor]
"""How a training step calls its block."""

OPTIONS = CompileOptions(backend="eager", cache=False)
without_reentry = partial(checkpoint, use_reentrant=False)


def matmuls_saved(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    saved = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def plain(block: Block, x: Tensor) -> Tensor:
    return without_reentry(block, x)


def twice(block: Block, x: Tensor) -> Tensor:
    return without_reentry(block, without_reentry(block, x))


def reentrant(block: Block, x: Tensor) -> Tensor:
    return checkpoint(block, x, use_reentrant=True)


def other_random_state(block: Block, x: Tensor) -> Tensor:
    return without_reentry(block, x, preserve_rng_state=False)


def under_autocast(block: Block, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return without_reentry(block, x)


def selective(block: Block, x: Tensor) -> Tensor:
    contexts = partial(create_selective_checkpoint_contexts, matmuls_saved)
    return without_reentry(lambda y: block(y.sin()).cos(), x, context_fn=contexts)


def nested(block: Block, x: Tensor) -> Tensor:
    return without_reentry(lambda y: without_reentry(block, y.sin()).cos(), x)


def recomputed_whole(block: Block, x: Tensor) -> Tensor:
    with set_checkpoint_early_stop(False):
        return without_reentry(block, x)


def sequential(block: Block, x: Tensor) -> Tensor:
    return checkpoint_sequential([block, block], 2, x, use_reentrant=False)


def offloaded(block: Block, x: Tensor) -> Tensor:
    with torch.autograd.graph.save_on_cpu():
        return without_reentry(block, x)


FORMS = (
    plain,
    twice,
    reentrant,
    other_random_state,
    under_autocast,
    selective,
    nested,
    recomputed_whole,
    sequential,
    offloaded,
)


CASES = [
    (form, dropout)
    for form in FORMS
    for dropout in (0.0, 0.3)
    if not (dropout and form is other_random_state)  # eager itself recomputes with another mask
]


def block_of(dropout: float) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.Dropout(dropout))


def trained(form: Form, module: nn.Module, block: Block) -> list[Tensor]:
    """Gradients after each of three steps, and random numbers drawn after it."""
    torch.manual_seed(1)
    x = torch.randn(4, 8, requires_grad=True)
    leaves = [x, *module.parameters()]
    numbers: list[Tensor] = []
    for _ in range(3):
        form(block, x).float().square().sum().backward()
        numbers += [leaf.grad.clone() for leaf in leaves if leaf.grad is not None]
        numbers.append(torch.rand(()))
    return numbers


def under_session(form: Form, module: nn.Module, owner: Any, verify: bool) -> list[Tensor]:
    """The same with the block given to `owner.compile`, as under `aotlens run`."""
    torch._dynamo.reset()
    collector = Collector(__file__)
    verifier = Verifier(collector, OPTIONS)
    hooks: dict[str, Any] = {"around": verifier.around, "before_direct": verifier.before_direct}
    router = CompileRouter(OPTIONS, collector, **(hooks if verify else {}))
    with collector.listening(), intercepting_compile(router):
        return trained(form, module, owner.compile(module))


@pytest.mark.rotates
@pytest.mark.parametrize("verify", [False, True], ids=["run", "verify"])
@pytest.mark.parametrize(("form", "dropout"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_numbers_are_eagers(form: Form, dropout: float, verify: bool) -> None:
    eager = block_of(dropout)
    expected = trained(form, eager, eager)
    found = under_session(form, block_of(dropout), torch, verify)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("verify", [False, True], ids=["run", "verify"])
@pytest.mark.parametrize("form", [plain, reentrant, selective, nested], ids=lambda form: form.__name__)
def test_numbers_are_eagers_of_a_direct_target(form: Form, verify: bool) -> None:
    eager = block_of(0.3)
    expected = trained(form, eager, eager)
    found = under_session(form, block_of(0.3), aotlens, verify)
    torch.testing.assert_close(found, expected)
