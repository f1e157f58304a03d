"""Every stage of every program runs on real inputs and computes what the stage before computes."""

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import aotlens
from aotlens.compiled import Compiled
from aotlens.errors import UnsupportedError
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.model.stage_changes import stage_difference
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify.locate.stages import compare_stages, replay_stages

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns


def values_that_occur(x: torch.Tensor) -> torch.Tensor:
    return x.sum() * torch.unique(x.detach()).numel()


def part_that_is_positive(x: torch.Tensor) -> torch.Tensor:
    return x.sum() / (x > 0).sum().item()


@pytest.mark.parametrize("taken_apart", [False, True], ids=["as_recorded", "with_decompositions"])
@pytest.mark.parametrize("function", [values_that_occur, part_that_is_positive])
def test_numbers_of_data_behind_dynamo(function: Any, taken_apart: bool) -> None:
    """Dynamo has symbols of its own for them, and another recording of the same calls has others."""
    from aotlens.codegen.inductor import decompositions

    options = CompileOptions("eager", decompositions=decompositions({}) if taken_apart else {})
    found: list[Compiled] = []
    x = torch.tensor([1.0, -2.0, 1.0, 3.0], requires_grad=True)
    settings = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    torch.compiler.reset()
    with torch._dynamo.config.patch(settings), observing(on_compiled=found.append):
        result = torch.compile(function, backend=dynamo_backend(options))(x)
    assert torch.equal(result, function(x))
    (compiled,) = found
    assert not compare_stages(replay_stages(compiled, [x]))


def test_a_power_of_a_size_that_data_tells_is_refused() -> None:
    power = lambda x: (x ** x[x > 0].shape[0]).sum()
    with pytest.raises(UnsupportedError, match=r"exponent is a symbolic size.* at .*: `.*; multiply, or"):
        compile_direct(power, (torch.randn(3, requires_grad=True),), {}, CompileOptions("eager"))


def scaled_in_place(x: Any, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h: Any = x * w
    h[0].add_(1)
    other: Any = TwoTensor(h.a * 2, h.b)
    return h + other, other.a


def stage_texts(function: Any, *args: Any) -> dict[str, list[str]]:
    """The lines of each stage's function, without the user's lines above them."""
    target = aotlens.inspect(function, *args).targets[0]
    texts = {stage.name: stage.text[stage.text.find("def ") :].split("\n") for stage in target.stages}
    return {
        name: [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
        for name, lines in texts.items()
    }


def test_operators_on_wrappers_are_captured_as_they_ran() -> None:
    x = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))
    texts = stage_texts(scaled_in_place, x, torch.randn(3, 4))
    assert texts["captured"] == [
        "def captured_graph(x, w):",
        "mul = aten_mul_Tensor(x, w)  # TwoTensor f32[3, 4]",
        "select = aten_select_int(mul, 0, 0)  # TwoTensor f32[4]",
        "aten_add__Tensor(select, 1); del select",
        "mul_a = mul.a  # f32[3, 4]",
        "mul_1 = aten_mul_Tensor(mul_a, 2); del mul_a  # f32[3, 4]",
        "mul_b = mul.b  # f32[3, 4]",
        (
            "twotensor = TwoTensor.__tensor_unflatten__({'a': mul_1, 'b': mul_b}, None, torch.Size((3, 4)), "
            "(4, 1)); del mul_b  # TwoTensor f32[3, 4]"
        ),
        "add_1 = aten_add_Tensor(mul, twotensor); del mul, twotensor  # TwoTensor f32[3, 4]",
        "return (add_1, mul_1)",
    ]
    assert texts["desugared"][:3] == [
        "def desugared_graph(x_a, x_b, w):",
        "mul = aten_mul_Tensor(x_a, w)  # f32[3, 4]",
        "mul_1 = aten_mul_Tensor(x_b, w)  # f32[3, 4]",
    ]


def test_what_a_subclass_makes_of_an_operator_comes_from_it() -> None:
    x = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))
    target = aotlens.inspect(scaled_in_place, x, torch.randn(3, 4)).targets[0]
    desugared = target.stage("desugared")
    assert desugared is not None
    assert {node.name: node.from_ for node in desugared.nodes} == {
        "x_a": ("x",),
        "x_b": ("x",),
        "w": ("w",),
        "mul": ("mul",),
        "mul_1": ("mul",),
        "select": ("select",),
        "select_1": ("select",),
        "add": ("add",),
        "add_1": ("add",),
        "mul_2": ("mul_1",),
        "add_2": ("add_1",),
        "add_3": ("add_1",),
        "output": (),
    }
    difference = stage_difference(target, "captured", "desugared")
    assert difference is not None
    assert [(change.kind, [node.name for node in change.after]) for change in difference.changes] == [
        ("replaced", ["x_a", "x_b"]),
        ("replaced", ["mul", "mul_1"]),
        ("replaced", ["select", "select_1"]),
        ("replaced", ["add", "add_1"]),
        ("removed", []),
        ("rewired", ["mul_2"]),
        ("removed", []),
        ("removed", []),
        ("replaced", ["add_2", "add_3"]),
    ]


@pytest.mark.rotates
def test_a_stage_without_wrappers_desugars_nothing() -> None:
    target = aotlens.inspect(values_that_occur, torch.randn(3)).targets[0]
    assert next(stage.same_as for stage in target.stages if stage.name == "desugared") == "captured"


def test_a_gradient_is_added_and_stands_for_nothing_before() -> None:
    target = aotlens.inspect(torch.sin, torch.randn(3, requires_grad=True)).targets[0]
    difference = stage_difference(target, "captured", "joint")
    assert difference is not None
    assert {change.kind for change in difference.changes} == {"added"}
