"""What a function given to `aot_function` and its like does beside its result: done at each call, or told."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.errors import RejectedRuntimeError, UnsupportedError


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    return aotlens.aot_function(fn, aotlens.nop)


def test_a_number_that_the_function_counts_is_built_in_for_one_call() -> None:
    calls = 0

    def counts(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    fn, x = compiled(counts), torch.ones(2)
    assert fn(x).tolist() == [1, 1]
    with pytest.warns(
        UserWarning, match="is recompiled at each call: it changes the closure variable `calls`"
    ):
        assert fn(x).tolist() == [2, 2]
    assert (fn(x).tolist(), calls) == ([3, 3], 3)  # told once


@pytest.mark.filterwarnings("ignore:.*is recompiled at each call")
def test_items_of_an_iterator_are_those_of_each_call() -> None:
    numbers = itertools.count(1)
    fn = compiled(lambda x: x * next(numbers))
    assert [fn(torch.ones(())).item() for _ in range(3)] == [1, 2, 3]


def test_what_settles_is_compiled_twice() -> None:
    class Cache(nn.Module):
        kept: Tensor | None = None

        def forward(self, x: Tensor) -> tuple[Tensor]:
            if self.kept is None:
                self.kept = x * 2
            return (x + self.kept,)

    module, x = Cache(), torch.ones(2)
    fn = aotlens.aot_module_simplified(module, (x,), aotlens.nop)
    assert [fn(x + at)[0].tolist() for at in range(3)] == [[3, 3], [4, 4], [5, 5]]
    assert isinstance(module.kept, Tensor)
    assert module.kept.tolist() == [2, 2]


def test_a_number_from_outside_is_looked_at() -> None:
    class Scale:
        factor = 2

    fn = compiled(lambda x: x * Scale.factor)
    assert fn(torch.ones(())).item() == 2
    Scale.factor = 3
    assert fn(torch.ones(())).item() == 3


def test_gradients_of_closures_are_refused() -> None:
    weight = torch.ones(2, requires_grad=True)

    def step(x: Tensor) -> Tensor:
        (x * weight).sum().backward()
        assert weight.grad is not None
        return weight.grad * 2

    with pytest.raises(UnsupportedError, match=r"reads or changes `weight.grad`"):
        compiled(step)(torch.ones(2))
    assert weight.grad is None


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_the_step_of_an_outer_optimizer_is_refused_and_leaves_nothing(kind: Any) -> None:
    model = nn.Linear(2, 1)
    optimizer = kind(model.parameters(), 0.1)

    def train(x: Tensor) -> Tensor:
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(UnsupportedError, match=r"reads or changes `model.weight.grad`"):
        compiled(train)(torch.ones(2))
    assert (model.weight.grad, dict(optimizer.state)) == (None, {})
    train(torch.ones(2))


def test_tensors_of_the_recording_are_not_left_in_what_no_call_can_fill() -> None:
    class Holder:
        kept: Any = None

    def leaves(x: Tensor) -> Tensor:
        Holder.kept = iter([x * 2])
        return x + 1

    with pytest.raises(UnsupportedError, match="of type `list_iterator` that the function stores in"):
        compiled(leaves)(torch.ones(2))
    assert Holder.kept is None


class Leaves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None
        self.calls = 0

    def forward(self, x: Tensor) -> tuple[Tensor]:
        self.calls += 1
        self.last = x * 2
        return (x + 1,)


def test_an_exported_graph_leaves_nothing() -> None:
    module = Leaves()
    with pytest.raises(RejectedRuntimeError, match="stores a tensor in the attribute `last`"):
        aotlens.aot_export_module(module, (torch.ones(2),), trace_joint=False)
    assert module.last is None


def test_an_exported_graph_takes_no_leaf_from_outside() -> None:
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(RejectedRuntimeError, match=r"reads the free variable `weight`, which requires grad"):
        aotlens.aot_export_joint_simple(lambda x: (x * weight,), [torch.ones(2)], trace_joint=False)
