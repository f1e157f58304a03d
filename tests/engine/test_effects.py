"""What operators do outside of their results happens once, in order, on its side."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.programs.operators.effects import PrintsInBackward

EVENTS: list[str] = []


@torch.library.custom_op("aotlens_test::note", mutates_args=())
def note(x: Tensor, text: str) -> Tensor:
    EVENTS.append(text)
    return x.clone()


@note.register_fake
def _(x: Tensor, text: str) -> Tensor:
    return torch.empty_like(x)


def _gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    return note(gradient, "backward of " + ctx.text), None


note.register_autograd(_gradient, setup_context=lambda ctx, inputs, output: setattr(ctx, "text", inputs[1]))
torch.library._register_effectful_op(
    torch.ops.aotlens_test.note.default, torch._library.effects.EffectType.ORDERED
)

BACKENDS = ("eager", "inductor")


@pytest.fixture(autouse=True)
def events() -> list[str]:
    EVENTS.clear()
    return EVENTS


def two_notes(x: Tensor) -> Tensor:
    note(x, "unread")
    y = note(x.sin(), "first")
    return note(y * x, "second").cos()


@pytest.mark.rotates
@pytest.mark.parametrize("policy", ["min-cut", "default"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_registered_effect_happens_once_and_in_order(backend: str, policy: str, events: list[str]) -> None:
    x = torch.randn(3, requires_grad=True)
    compiled = compile_direct(two_notes, (x,), {}, CompileOptions(backend=backend, policy=policy))
    assert events == []
    out = compiled.call(x)
    assert events == ["unread", "first", "second"]
    events.clear()
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert events == ["backward of second", "backward of first"]
    torch.testing.assert_close(gradient, torch.autograd.grad(two_notes(x).sum(), x)[0])


@pytest.mark.rotates
@pytest.mark.parametrize("backend", BACKENDS)
def test_prints_stand_on_their_side(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(3, requires_grad=True)

    def function(x: Tensor) -> Any:
        torch.ops.aten._print("start")
        return PrintsInBackward.apply(x.sin()) * 3

    compiled = compile_direct(function, (x,), {}, CompileOptions(backend=backend))
    capfd.readouterr()
    out = compiled.call(x)
    torch.ops.aten._print("between")
    out.sum().backward()
    assert capfd.readouterr().out.split() == ["start", "forward", "between", "backward"]


def in_one_kernel(x: Tensor) -> Tensor:
    """What is noted first and what is computed last fit into one loop, which would run after all notes."""
    note(x * 2, "first")
    note(x + 1, "second")
    third = note(x, "third")
    note(x.sin(), "fourth")
    return x * third - note(x, "fifth")


@pytest.mark.rotates
@pytest.mark.parametrize("backend", BACKENDS)
def test_fused_kernels_keep_the_order_of_effects(backend: str, events: list[str]) -> None:
    x = torch.ones(3)
    call = compile_direct(in_one_kernel, (x,), {}, CompileOptions(backend=backend)).call
    events.clear()
    call(x)
    assert events == ["first", "second", "third", "fourth", "fifth"]
