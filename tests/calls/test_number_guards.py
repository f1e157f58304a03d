"""Numbers that a function reads: their class, the sign of zero, and NaN."""

import math
import sys
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import torch

import aotlens
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.calls.test_direct_guards import EAGER


class Level(IntEnum):
    LOW = 2
    HIGH = 3


def test_numbers_of_a_class_of_their_own() -> None:
    call: Any = aotlens.compile(lambda x, number: x * number, options=CompileOptions(backend="eager"))
    x = torch.randn(3)
    for number in (Level.LOW, Level.HIGH, np.float64(2.5), np.float64(0.5), 2, Level.LOW):
        assert torch.equal(call(x, number), x * number)
    assert len(call.compiled) == 5


class Signed:
    """An object whose attribute is built in."""

    def __init__(self, value: float) -> None:
        self.value = value


def signs(x: torch.Tensor, a: Any) -> torch.Tensor:
    value = a.value if isinstance(a, Signed) else a.real
    return x * math.copysign(1.0, value) + torch.full((2,), value)


@pytest.mark.parametrize("made", [float, Signed, lambda value: complex(value, 1.0)])
def test_zeros_have_a_sign_and_nan_equals_itself(made: Any) -> None:
    x, call = torch.ones(2), aotlens.compile(signs, options=EAGER)
    flat = aotlens.aot_function(signs, fw_compiler=aotlens.nop)
    for value in (0.0, -0.0, 0.0, float("nan"), float("nan"), 1.0):
        expected = signs(x, made(value))
        for found in (call(x, made(value)), *([flat(x, value)] if made is float else [])):
            assert torch.equal(found.signbit(), expected.signbit()) or value != value
            torch.testing.assert_close(found, expected, equal_nan=True)
    if made is float:
        assert len(getattr(call, "compiled")) == 4  # noqa: B009


def test_the_module_text_tells_the_sign_of_zero() -> None:
    x = torch.ones(2)
    call = compile_direct(signs, (x, 0.0), {}, CompileOptions("eager")).call
    assert torch.equal(call(x, 0.0), torch.ones(2))
    with pytest.raises(ValueError, match=r"`a` is the constant 0.0, got -0.0"):
        call(x, -0.0)


def test_a_global_zero_has_a_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    x, call = torch.ones(2), aotlens.compile(signed_by_a_global, options=EAGER)
    assert call(x).tolist() == [1.0, 1.0]
    monkeypatch.setattr(sys.modules[__name__], "ZERO", -0.0)
    assert call(x).tolist() == [-1.0, -1.0]


ZERO = 0.0


def signed_by_a_global(x: torch.Tensor) -> torch.Tensor:
    return x * math.copysign(1.0, ZERO)
