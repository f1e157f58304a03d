"""Activation checkpoints: which values pass to the backward, under which reason; re-entrant ones."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from aotlens.compiled import Compiled
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.programs.gradients.checkpointing import block, keep_matmuls
from tests.programs.program import leaf

pytestmark = pytest.mark.filterwarnings("ignore")

POLICIES = ("min-cut", "default")


def compiled(fn: Callable[..., Any], *args: Any, policy: str = "min-cut") -> Compiled:
    return compile_direct(fn, args, {}, CompileOptions(backend="eager", policy=policy))


def saved_operators(given: Compiled) -> list[str]:
    """What the forward computes for the backward."""
    return [saved.node.target for saved in given.parts.saved if saved.node.op is not None]


def plain(x: Tensor, w: Tensor) -> Tensor:
    return block(x, w).cos()


def marked(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(block, x, w, use_reentrant=False).cos()


def marked_but_matmuls(x: Tensor, w: Tensor) -> Tensor:
    contexts = partial(create_selective_checkpoint_contexts, keep_matmuls)
    return checkpoint(block, x, w, use_reentrant=False, context_fn=contexts).exp()


def marked_reentrant(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(block, x, w, use_reentrant=True).cos()


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_marked_is_not_kept(policy: str) -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    assert "aten.mm.default" not in saved_operators(compiled(marked, x, w, policy=policy))
    again = {
        found.node.target: found.reason.text
        for found in compiled(marked, x, w, policy=policy).parts.recomputed
    }
    assert again["aten.mm.default"] == "inside an activation checkpoint"


def test_without_it_a_value_is_kept() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    assert saved_operators(compiled(plain, x, w)) == ["aten.sigmoid.default"]


def test_each_checkpoint_starts_from_what_the_one_before_it_gave() -> None:
    """As in eager: otherwise the values of all of them would be in memory at once."""

    def layer(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).tanh().view(2, 8).view(4, 4)

    def chained(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            x = checkpoint(layer, x, w, use_reentrant=False)
        return x.sum()

    def residual(x: Tensor, w: Tensor) -> Tensor:
        x = x.sin()
        for _ in range(3):
            x = x + checkpoint(layer, x.exp(), w, use_reentrant=False)
        return x.sum()

    assert saved_operators(compiled(chained, leaf(4, 4), leaf(4, 4))) == ["aten.tanh.default"] * 2
    assert saved_operators(compiled(residual, leaf(4, 4), leaf(4, 4))) == ["aten.tanh.default"] * 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_selective_policy_keeps_what_it_names(policy: str) -> None:
    found = compiled(marked_but_matmuls, leaf(3, 4), leaf(4, 5), policy=policy).parts
    kept = {saved.node.target: saved.reason.text for saved in found.saved if saved.node.op is not None}
    assert "aten.mm.default" in kept
    assert "aten.sigmoid.default" not in kept
    if policy == "min-cut":
        assert kept["aten.mm.default"] == "the activation checkpoint's policy saves it"


@pytest.mark.parametrize("policy", POLICIES)
def test_reentrant(policy: str) -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    expected = torch.autograd.grad(plain(x, w).sum(), (x, w))
    compiled(marked_reentrant, x, w, policy=policy).call(x, w).sum().backward()
    torch.testing.assert_close([x.grad, w.grad], list(expected))


def test_reentrant_without_an_input_that_requires_grad_gives_none() -> None:
    x, w = torch.randn(3, 4), leaf(4, 5)
    call = compiled(lambda x, w: checkpoint(lambda x: x @ w, x, use_reentrant=True), x, w).call
    assert not call(x, w).requires_grad


def test_batch_norm_counts_one_run() -> None:
    """Eager counts the second run as well, which no compiled checkpoint does."""
    norm, x = nn.BatchNorm1d(4), leaf(3, 4)

    class Marked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(lambda x: self.norm(x).relu(), x, use_reentrant=False)

    module = Marked()
    expected = torch.autograd.grad(nn.BatchNorm1d(4)(x).relu().square().sum(), x)
    found = torch.autograd.grad(compiled(module, x).call(x).square().sum(), x)
    torch.testing.assert_close(found, expected)
    assert norm.num_batches_tracked == torch.tensor(1)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_mask_is_one(policy: str) -> None:
    def step(x: Tensor) -> Tensor:
        return nn.functional.dropout(x.exp(), 0.5).square()

    def whole(x: Tensor) -> Tensor:
        return checkpoint(step, x, use_reentrant=False)

    x = leaf(40)
    call = compiled(whole, x, policy=policy).call
    torch.manual_seed(4)
    out = call(x)
    out.sum().backward()
    assert x.grad is not None
    assert bool(((x.grad == 0) == (out == 0)).all())


def test_a_checkpoint_outside_of_a_recording_is_torchs_own() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    runs = []

    def counted(x: Tensor, w: Tensor) -> Tensor:
        runs.append(1)
        return block(x, w)

    compiled(marked, x, w)
    checkpoint(counted, x, w, use_reentrant=False).sum().backward()
    assert len(runs) == 2
