"""Modes of the user's around a call that compiles: they see what runs, and nothing of the recording."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import aotlens
from aotlens.options import CompileOptions

EAGER = CompileOptions(backend="eager")
ENTRIES = (
    lambda fn: aotlens.aot_function(fn, aotlens.nop),
    lambda fn: aotlens.compile(fn, options=EAGER),
)

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def layers(x: Tensor, weight: Tensor) -> Tensor:
    return ((x @ weight).relu() @ weight).sin().sum()


def given() -> tuple[Tensor, Tensor]:
    return torch.ones(4, 8), torch.ones(8, 8, requires_grad=True)


def flops(fn: Callable[..., Any]) -> int:
    """Of a call, its backward and the backward of that."""
    x, weight = given()
    with FlopCounterMode(display=False) as counted:
        (gradient,) = torch.autograd.grad(fn(x, weight), weight, create_graph=True)
        gradient.sum().backward()
    return counted.get_total_flops()


def test_operations_are_counted_once() -> None:
    fn = ENTRIES[0](layers)
    assert flops(fn) == flops(fn) == flops(layers)
    computes_again = ENTRIES[1](layers)
    assert flops(computes_again) == flops(computes_again)


class Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("wrap", ENTRIES)
def test_a_dispatch_mode_sees_the_first_call_as_later_ones(wrap: Wrap) -> None:
    fn, logged = wrap(layers), []
    for _ in range(2):
        with Log() as log:
            fn(*given()).backward()
        logged.append(log.ops)
    assert logged[0] == logged[1]


class Sigmoids(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (torch.sigmoid if func is torch.relu else func)(*args, **(kwargs or {}))


@pytest.mark.parametrize("wrap", ENTRIES)
def test_a_function_mode_changes_what_the_function_does_while_it_is_on(wrap: Wrap) -> None:
    fn, x = wrap(lambda x: torch.relu(x) * 2), torch.ones(2)
    with Sigmoids():
        torch.testing.assert_close(fn(x), x.sigmoid() * 2)
    torch.testing.assert_close(fn(x), x.relu() * 2)
    with Sigmoids():
        torch.testing.assert_close(fn(x), x.sigmoid() * 2)


def test_the_modes_are_as_they_were_when_the_function_fails() -> None:
    with FakeTensorMode() as fakes, Log() as log, Sigmoids() as sigmoids:
        with pytest.raises(ZeroDivisionError):
            ENTRIES[0](lambda x: x / (1 // 0))(torch.empty(2))
        stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        assert stack == [fakes, log] or stack == [log, fakes]
        assert torch.overrides._get_current_function_mode_stack() == [sigmoids]


@pytest.mark.parametrize("wrap", ENTRIES)
def test_a_profiler_sees_one_event_for_each_stage(wrap: Wrap) -> None:
    fn = wrap(layers)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        fn(*given())
    counts = {event.key: event.count for event in profiled.key_averages()}
    assert counts["aten::mm"] == 2
    assert [counts[f"aotlens: {stage}"] for stage in ("capture", "joint", "runtime")] == [1, 1, 1]
