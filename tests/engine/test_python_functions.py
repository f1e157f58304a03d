"""Which of torch's Python functions stand for operators in module texts."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import aotlens
from aotlens.options import CompileOptions
from aotlens.torch_api.python_functions import python_function

aten = torch.ops.aten
x = torch.randn(2, 3)
one = torch.tensor(1.0)

FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], str | None]] = {
    "one overload": (aten.sin.default, (x,), {}, "torch._C._VariableFunctions.sin"),
    "a number for a tensor": (aten.add.Tensor, (x, 2), {}, "torch._C._VariableFunctions.add"),
    "a tensor of one element": (aten.mul.Tensor, (one, x), {}, "torch._C._VariableFunctions.mul"),
    "a keyword": (aten.add.Tensor, (x, x), {"alpha": 2}, "torch._C._VariableFunctions.add"),
    "in place": (aten.add_.Tensor, (x, 1), {}, "torch._C.TensorBase.add_"),
    "a method only": (aten.view.default, (x, [3, 2]), {}, "torch._C.TensorBase.view"),
    "a composition": (aten.reshape.default, (x, [6]), {}, "torch._C._VariableFunctions.reshape"),
    "of torch.nn": (aten.gelu.default, (x,), {"approximate": "tanh"}, "torch._C._nn.gelu"),
    "a list of tensors": (aten.cat.default, ([x, x], 1), {}, "torch._C._VariableFunctions.cat"),
    "several results": (aten.max.dim, (x, 1), {}, "torch._C._VariableFunctions.max"),
    "parsed as another overload": (aten.add.Scalar, (x, 2), {}, None),
    "other keywords": (aten.zeros_like.default, (x,), {}, None),
    "a list, which a function returns as a tuple": (aten.split.Tensor, (x, 1), {}, None),
    "no function": (aten.slice.Tensor, (x, 0, 0, 1), {}, None),
    "a sparse tensor": (aten.sin.default, (torch.eye(2).to_sparse(),), {}, None),
    "an argument of another type": (aten.bernoulli.p, (x, 0.5), {"generator": torch.Generator()}, None),
    "a namespace of its own": (torch.ops.prims.sin.default, (x,), {}, None),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function_stands_for_exactly_its_operator(case: str) -> None:
    op, args, kwargs, expected = FUNCTIONS[case]
    assert python_function(op, args, kwargs) == expected


def test_tensors_may_be_fake_and_autocast_on() -> None:
    with FakeTensorMode() as mode, torch.autocast("cpu"):
        fake = mode.from_tensor(torch.randn(3, 3))
        assert python_function(aten.mm.default, (fake, fake), {}) == "torch._C._VariableFunctions.mm"


def test_an_exported_text_names_operators() -> None:
    """Another release of torch may parse the arguments of a function in another way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "aten_sin = torch.ops.aten.sin.default._op" in aotlens.export(torch.sin, x)


class Tagged(Tensor):
    """Negates what `torch.sin` returns."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return -result if func is torch.sin else result


def test_a_function_of_a_subclass_runs_once() -> None:
    compiled = aotlens.compile(lambda t: torch.sin(t) + 1, options=CompileOptions(backend="eager"))
    tagged = x.as_subclass(Tagged)
    for _ in range(2):
        assert torch.equal(compiled(tagged).as_subclass(Tensor), 1 - x.sin())
