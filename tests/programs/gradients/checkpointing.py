"""Activation checkpointing: what the user's code marks is computed again in the backward."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from tests.programs.program import Cases, Fixed, leaf, plain, tape

cases = Cases("checkpointing")


def block(x: Tensor, w: Tensor) -> Tensor:
    return torch.mm(x, w).sigmoid().sin()


@cases(lambda: (leaf(3, 4), leaf(4, 5)), "inductor", "dynamic")
def one_block(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(block, x, w, use_reentrant=False).cos()


@cases(lambda: (leaf(3, 4), leaf(4, 4)))
def two_blocks(x: Tensor, w: Tensor) -> Tensor:
    hidden = checkpoint(block, x, w, use_reentrant=False)
    return checkpoint(block, hidden, w, use_reentrant=False)


@cases(lambda: (leaf(3, 4), leaf(4, 4)))
def nested(x: Tensor, w: Tensor) -> Tensor:
    def outer(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(block, x.cos(), w, use_reentrant=False).exp()

    return checkpoint(outer, x, w, use_reentrant=False)


@cases(lambda: (leaf(30, 4), leaf(4, 5)), "inductor")
def with_dropout(x: Tensor, w: Tensor) -> Tensor:
    def step(x: Tensor, w: Tensor) -> Tensor:
        return nn.functional.dropout(torch.mm(x, w).sin(), 0.5).cos()

    return checkpoint(step, x, w, use_reentrant=False)


@cases(lambda: (leaf(30, 4), leaf(4, 5)))
def without_keeping_the_random_state(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(block, x, w, use_reentrant=False, preserve_rng_state=False)


@cases(lambda: (leaf(3, 4), leaf(4, 5)), context=torch.no_grad)
def under_no_grad(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(block, x, w, use_reentrant=False)


@cases(lambda: (plain(3, 4), plain(4, 5)))
def without_gradients(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(block, x, w, use_reentrant=False)


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def under_autocast(x: Tensor, w: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return checkpoint(block, x, w, use_reentrant=False)


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def result_is_a_view(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(lambda x, w: block(x, w).view(-1), x, w, use_reentrant=False)


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def several_results(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    first, second = checkpoint(lambda x, w: (block(x, w), x.sin()), x, w, use_reentrant=False)
    return first.sum(), second * 2


def keep_matmuls(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return (
        CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE
    )


@cases(lambda: (leaf(3, 4), leaf(4, 5)), "inductor")
def selective_by_policy(x: Tensor, w: Tensor) -> Tensor:
    contexts = partial(create_selective_checkpoint_contexts, keep_matmuls)
    return checkpoint(block, x, w, use_reentrant=False, context_fn=contexts)


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def selective_by_list(x: Tensor, w: Tensor) -> Tensor:
    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.sigmoid.default])
    return checkpoint(block, x, w, use_reentrant=False, context_fn=contexts)


@cases(lambda: (leaf(3, 4),))
def sequential() -> Callable[[Tensor], Tensor]:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    for parameter in layers.parameters():
        parameter.requires_grad_(False)
    return lambda x: checkpoint_sequential(layers, 2, x, use_reentrant=False)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 8)

    def inner(self, x: Tensor) -> Tensor:
        return self.second(nn.functional.dropout(self.first(x).relu(), 0.2))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False) + checkpoint(self.inner, x, use_reentrant=False)


cases(lambda: (plain(3, 8),), "inductor")(Checkpointed)


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic")
def checkpointed_result_written_to(x: Tensor) -> Tensor:
    y = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False)
    y += x
    flat = y.view(-1)
    flat.mul_(2)
    return y.tanh()


@cases(lambda: (leaf(3, 4), torch.tensor(True)))
def cond_inside(x: Tensor, flag: Tensor) -> Tensor:
    def run(x: Tensor) -> Tensor:
        return torch.cond(flag, lambda y: y.sin(), lambda y: y * 2, (x,)).exp()

    return checkpoint(run, x, use_reentrant=False)


@cases(lambda: (tape(3, 4),), "dynamic")
def argument_written_to_after(x: Tensor) -> Tensor:
    turned = x.t()
    y = checkpoint(torch.sin, turned, use_reentrant=False)
    turned.mul_(2)
    return y


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def argument_of_the_reentrant_kind_written_to_after(x: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    y = checkpoint(torch.mul, x, factor, use_reentrant=True)
    factor.mul_(2)
    return y, x * 3


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamo", "dynamic")
def written_to_after_without_being_needed(x: Tensor, shift: Tensor) -> Tensor:
    y = checkpoint(lambda x: x.sin() + shift, x, use_reentrant=False)
    shift.mul_(2)
    return y


class CountsCalls(nn.Module):
    """The block reads a buffer that no gradient needs, and the model advances it after the block."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.count = nn.Buffer(torch.zeros(()))

    def block(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.count

    def forward(self, x: Tensor) -> Any:
        y = checkpoint(self.block, x, use_reentrant=False)
        self.count.add_(1)
        return y


cases(lambda: (leaf(3, Fixed(4)),), "dynamo", "dynamic")(CountsCalls)
