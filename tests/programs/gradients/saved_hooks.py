"""Hooks on saved tensors that are graph modules: they become parts of the graphs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch import config
from torch.autograd.graph import saved_tensors_hooks

from tests.programs.program import Cases, Fixed, ints, leaf, plain

cases = Cases("saved_hooks")

ARGS = lambda: (leaf(3, 4), leaf(4, 5))
EVERYWHERE = ("dynamic", "inductor")


def hooks(pack: Callable[..., Any], unpack: Callable[..., Any]) -> saved_tensors_hooks:
    return saved_tensors_hooks(fx.symbolic_trace(pack), fx.symbolic_trace(unpack))


def widened() -> saved_tensors_hooks:
    return hooks(lambda tensor: tensor.double() * 2, lambda packed: (packed / 2).float())


@contextmanager
def widened_where(values: str) -> Iterator[None]:
    with config.patch(saved_tensors_hooks_filtering_mode=values), widened():
        yield


@cases(ARGS, *EVERYWHERE, context=widened)
def another_type(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


@cases(ARGS, *EVERYWHERE, context=lambda: widened_where("all"))
def inputs_and_results_too(x: Tensor, w: Tensor) -> Any:
    hidden = (x @ w).exp()
    return hidden, hidden.sin().sum()


@cases(lambda: (leaf(3, Fixed(4)),), *EVERYWHERE, context=lambda: widened_where("no_static"))
class AllButParameters(nn.Module):
    """A layer and a norm, whose statistics it updates."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.inner(x)).relu().sum(1)


@cases(
    ARGS,
    *EVERYWHERE,
    context=lambda: hooks(
        lambda t: torch.frexp(t),  # noqa: PLW0108 (a builtin cannot be traced)
        lambda packed: torch.ldexp(packed[0], packed[1]),
    ),
)
def several_tensors(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


def _flat(tensor: Tensor) -> Any:
    return tensor.reshape(-1).double(), tensor.size(0), {"sizes": [tensor.size(1)], "name": "flat"}


def _whole(packed: Any) -> Tensor:
    return packed[0].view(packed[1], packed[2]["sizes"][0]).float()


@cases(ARGS, *EVERYWHERE, context=lambda: hooks(_flat, _whole))
def sizes_beside_the_tensor(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


@cases(
    ARGS,
    *EVERYWHERE,
    context=lambda: hooks(lambda t: t.view(torch.uint8), lambda packed: packed.view(torch.float32)),
)
def a_view(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


@cases(ARGS, *EVERYWHERE, context=lambda: hooks(lambda tensor: tensor, lambda packed: packed))
def nothing_done(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


@cases(ARGS, *EVERYWHERE, context=lambda: hooks(lambda tensor: tensor, lambda packed: packed * 1))
def only_unpacked(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


@cases(
    ARGS,
    *EVERYWHERE,
    context=lambda: hooks(lambda t: t.clone().mul_(4), lambda packed: packed.clone().div_(4)),
)
def writes_to_their_own(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


class Scaled(nn.Module):
    """A hook with a parameter and a buffer."""

    more: Tensor

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.register_buffer("more", torch.tensor([scale]))

    def forward(self, tensor: Tensor) -> Tensor:
        return tensor * self.scale * self.more


@cases(
    ARGS,
    *EVERYWHERE,
    context=lambda: saved_tensors_hooks(fx.symbolic_trace(Scaled(2.0)), fx.symbolic_trace(Scaled(0.5))),
)
def hooks_with_tensors_of_their_own(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


class Sloped(nn.Module):
    """A hook that runs layers of its own."""

    def __init__(self, *slopes: float) -> None:
        super().__init__()
        self.slopes = nn.ModuleList(nn.PReLU(1, init=slope) for slope in slopes)

    def forward(self, tensor: Tensor) -> Tensor:
        for layer in self.slopes:
            tensor = layer(tensor)
        return tensor


@cases(
    ARGS,
    *EVERYWHERE,
    context=lambda: saved_tensors_hooks(fx.symbolic_trace(Sloped(4.0)), fx.symbolic_trace(Sloped(0.5, 0.5))),
)
def hooks_with_layers_of_their_own(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


@cases(
    lambda: (leaf(4, 3),),
    *EVERYWHERE,
    context=lambda: hooks(lambda t: t.contiguous().double(), lambda packed: packed.float()),
)
def another_layout(x: Tensor) -> Tensor:
    return (x.t() * 2).sin().exp().t()


def flipped() -> saved_tensors_hooks:
    return hooks(lambda tensor: tensor.flip(0), lambda packed: packed.flip(0))


@cases(
    ARGS,
    "dynamic",
    context=lambda: hooks(lambda t: (t / 2, t.new_full((), 2.0).item()), lambda p: p[0] * p[1]),
)
def a_number_that_data_tells(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


@cases(lambda: (leaf(6, 4), ints(6) > 0), "dynamic", context=flipped)
def a_size_that_data_tells(x: Tensor, mask: Tensor) -> Tensor:
    return (x[mask] * 2).sin().exp()


@cases(lambda: (leaf(3, 4), plain(3, 4)), *EVERYWHERE, context=widened)
def with_a_written_input(x: Tensor, seen: Tensor) -> Tensor:
    seen.mul_(2)
    return (x * seen).sin().exp()


@cases(ARGS, "dynamic", context=lambda: hooks(lambda t: t.mul_(1), lambda packed: packed))
def a_hook_that_writes_to_what_is_saved(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().cos()


@cases(lambda: (leaf(3, 4),), *EVERYWHERE, context=widened)
def nothing_to_pack(x: Tensor) -> Tensor:
    return x.sin()
