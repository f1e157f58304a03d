"""A call that does not fit what was compiled: served rightly or refused clearly, never computed wrongly."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.errors import AotlensError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify.compare import compare
from aotlens.verify.observe import Failure, observe_alone
from aotlens.verify.tensors.prepared_call import copies, prepare_call
from tests.programs.program import leaf, plain

EAGER = CompileOptions(backend="eager")


def product(x: Tensor, y: Tensor) -> Tensor:
    x.detach().add_(1)
    return x * y


def written(x: Tensor) -> Tensor:
    with torch.inference_mode():
        x.mul_(2)
    return x * 3


def scaled(x: Tensor, factor: Any) -> Tensor:
    return x * factor


def nested(batch: dict[str, Tensor]) -> Tensor:
    return sum(batch.values(), start=torch.zeros(()))


def viewed(x: Tensor) -> Tensor:
    return x.view(-1) * 2


def same() -> tuple[Tensor, Tensor]:
    tensor = plain(3)
    return tensor, tensor


def overlapping() -> tuple[Tensor, Tensor]:
    tensor = plain(4)
    return tensor[:3], tensor[1:]


def inference_tensor() -> tuple[Tensor]:
    with torch.inference_mode():
        return (plain(3),)


Make = Callable[[], tuple[Any, ...]]

CALLS: dict[str, tuple[Callable[..., Any], Make, Make]] = {
    "other size": (product, lambda: (plain(3), plain(3)), lambda: (plain(4), plain(4))),
    "size 1 broadcast": (product, lambda: (plain(3), plain(3)), lambda: (plain(3), plain(1))),
    "other rank": (product, lambda: (plain(3), plain(3)), lambda: (plain(2, 3), plain(3))),
    "other dtype": (product, lambda: (plain(3), plain(3)), lambda: (plain(3).double(), plain(3))),
    "other stride": (viewed, lambda: (plain(3, 4),), lambda: (plain(3, 8)[:, ::2],)),
    "requires grad now": (scaled, lambda: (plain(3), 2.0), lambda: (leaf(3), 2.0)),
    "requires grad no more": (scaled, lambda: (leaf(3), 2.0), lambda: (plain(3), 2.0)),
    "duplicates now": (product, lambda: (plain(3), plain(3)), same),
    "duplicates no more": (product, same, lambda: (plain(3), plain(3))),
    "aliases now": (product, lambda: (plain(3), plain(3)), overlapping),
    "an inference tensor now": (written, lambda: (plain(3),), inference_tensor),
    "no inference tensor any more": (written, inference_tensor, lambda: (plain(3),)),
    "other number": (scaled, lambda: (plain(3), 2), lambda: (plain(3), 3)),
    "other type of number": (scaled, lambda: (plain(3), 2), lambda: (plain(3), 2.5)),
    "tensor for a number": (scaled, lambda: (plain(3), 2.0), lambda: (plain(3), plain(3))),
    "other keys": (
        nested,
        lambda: ({"a": plain(3), "b": plain(3)},),
        lambda: ({"a": plain(3), "c": plain(3)},),
    ),
    "more keys": (nested, lambda: ({"a": plain(3)},), lambda: ({"a": plain(3), "b": plain(3)},)),
}


def says_what_does_not_fit(failure: Failure) -> bool:
    """Module texts need torch alone, so their errors are Python's own; the message tells them apart."""
    return (
        issubclass(failure.kind, AssertionError | ValueError | TypeError | RuntimeError)
        and "compiled" in failure.message
    )


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("case", CALLS)
def test_call_that_does_not_fit(case: str, dynamic: bool) -> None:
    fn, first, second = CALLS[case]
    try:
        call = compile_direct(fn, first(), {}, CompileOptions(backend="eager", dynamic=dynamic)).call
    except AotlensError as error:
        pytest.skip(f"refused: {error}")
    eager_world, compiled_world = copies(prepare_call(fn, second()))
    expected = observe_alone(eager_world)
    found = observe_alone(compiled_world, call=call)
    if found.failure is not None and says_what_does_not_fit(found.failure):
        return
    differences = compare(found, expected).differences
    assert not differences, "\n".join(map(str, differences))


def test_other_grad_mode() -> None:
    x = leaf(3)
    call = compile_direct(scaled, (x, 2.0), {}, EAGER).call
    with torch.no_grad():
        assert not call(x, 2.0).requires_grad


def test_compiled_under_no_grad_then_called_with_gradients() -> None:
    x = leaf(3)
    with torch.no_grad():
        call = compile_direct(scaled, (x, 2.0), {}, EAGER).call
    with pytest.raises(AssertionError, match="was compiled under the assumption that input 0 would not"):
        call(x, 2.0)


class Settings:
    """An object of the user's own, as an argument."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


@pytest.mark.parametrize("compiler", ["compile", "aot_function"])
def test_an_attribute_of_an_argument_changes(compiler: str) -> None:
    def fn(x: Tensor, settings: Settings) -> Tensor:
        return x * settings.factor

    call = (
        aotlens.compile(fn, options=EAGER) if compiler == "compile" else aotlens.aot_function(fn, aotlens.nop)
    )
    settings, x = Settings(2.0), torch.ones(3)
    assert call(x, settings).tolist() == [2.0, 2.0, 2.0]
    settings.factor = 3.0
    assert call(x, settings).tolist() == [3.0, 3.0, 3.0]


def test_a_numpy_argument_is_refused_by_name() -> None:
    with pytest.raises(aotlens.UnsupportedError, match="numpy array as the input `x`"):
        aotlens.compile(lambda x: x)(np.ones(3))


def test_a_lazily_negated_tensor_comes_later() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.view(-1)

    call = aotlens.compile(fn, options=EAGER)
    x = torch.randn(4, dtype=torch.complex64)
    call(x.imag)
    negated = x.conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(call(negated), fn(negated))
    assert len(call.compiled) == 2  # type: ignore[attr-defined]
