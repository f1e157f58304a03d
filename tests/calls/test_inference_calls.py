"""Calls with inference tensors after calls with normal ones, and the other way round: each is as eager."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions

EAGER = CompileOptions(backend="eager")
MODES: dict[str, Callable[[], Any]] = {
    "outside": nullcontext,
    "inside": torch.inference_mode,
    "no_grad": torch.no_grad,
}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def written(x: Tensor) -> Tensor:
    x.mul_(2)
    return x * 3


def written_inside(x: Tensor) -> Tensor:
    with torch.inference_mode():
        x.mul_(2)
    return x * 3


def turned_inside(x: Tensor) -> Tensor:
    with torch.inference_mode():
        x.t_()
    return x * 3


def detached_and_written(x: Tensor) -> Tensor:
    x.detach().mul_(2)
    return x * 3


def compilers(fn: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {
        "compile": aotlens.compile(fn, options=EAGER),
        "aot_function": aotlens.aot_function(fn, aotlens.nop, keep_inference_input_mutations=True),
        "dynamo": torch.compile(fn, backend=dynamo_backend(EAGER)),
    }


def argument(kind: str) -> Tensor:
    with torch.inference_mode(kind != "normal"):
        tensor = torch.arange(6.0).reshape(2, 3)
    return tensor.detach() if kind == "detached" else tensor


def outcome(fn: Callable[..., Any], kind: str, mode: str) -> tuple[Any, ...]:
    """What the call gives and leaves, or the error that it raises; eager has written by then, a graph not."""
    x = argument(kind)
    with MODES[mode]():
        try:
            out = fn(x)
        except RuntimeError as error:
            return type(error), str(error)
    version = None if x.is_inference() else x._version
    return out.tolist(), out.is_inference(), out.shape, x.tolist(), version


@pytest.mark.rotates
@pytest.mark.parametrize("fn", [written, written_inside, turned_inside, detached_and_written])
@pytest.mark.parametrize("compiler", ["compile", "aot_function", "dynamo"])
@pytest.mark.parametrize("kinds", [*permutations(("normal", "inference"))], ids="_then_".join)
def test_the_other_kind_of_tensor_comes_later(
    fn: Callable[..., Any], compiler: str, kinds: tuple[str, str]
) -> None:
    for first, later in ((first, later) for first in MODES for later in MODES):
        torch.compiler.reset()
        compiled = compilers(fn)[compiler]
        for kind, mode in zip(kinds, (first, later), strict=True):
            assert outcome(compiled, kind, mode) == outcome(fn, kind, mode), (first, later, kind)


@pytest.mark.parametrize("compiler", ["compile", "dynamo"])
def test_a_detached_inference_tensor_takes_writes(compiler: str) -> None:
    compiled = compilers(written)[compiler]
    for kind in ("detached", "inference", "detached"):
        assert outcome(compiled, kind, "outside") == outcome(written, kind, "outside"), kind


@pytest.mark.rotates
def test_inductor_writes_to_an_inference_tensor() -> None:
    compiled = aotlens.compile(written_inside)
    assert outcome(compiled, "inference", "outside") == outcome(written_inside, "inference", "outside")
