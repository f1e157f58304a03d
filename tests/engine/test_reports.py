"""The report of each program says what eager does: who is mutated, what aliases what, and where it stands."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

import aotlens
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.engine import golden_functions

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns


def test_ancestors_are_names_of_the_parent_stage() -> None:
    target = compile_direct(
        golden_functions.running_total,
        (torch.ones(4, requires_grad=True), torch.ones(4)),
        {},
        CompileOptions(backend="eager"),
    ).target()
    stages = [found for stage in target.stages if (found := target.stage(stage.name)) is not None]
    names = {stage.name: {node.name for node in stage.nodes} for stage in stages}
    for stage in stages:
        for node in stage.nodes:
            assert set(node.from_) <= names.get(stage.parent or "", set())
    joint = target.stage("joint")
    assert joint is not None
    backward = {node.name: (node.from_, node.reason) for node in joint.nodes if "gradient of" in node.reason}
    assert backward == {
        "threshold_backward": (("relu",), "part of the gradient of `aten.relu.default`"),
        "mul_1": (("mul",), "part of the gradient of `aten.mul.Tensor`"),
    }
    functional = target.stage("functional")
    assert functional is not None
    assert {node.name: node.from_ for node in functional.nodes if node.op == "call_function"}["add"] == (
        "add",
    )


def test_an_argument_made_to_require_grad_has_its_place() -> None:
    def turned(x: Tensor) -> Tensor:
        x.requires_grad_()
        return x * 3

    (given,) = aotlens.inspect(turned, torch.ones(3)).targets[0].inputs
    assert given.autograd_change == "made to require grad"
    assert [site.text for site in given.sites] == ["x.requires_grad_()"]


def test_higher_order_operators_and_wrappers_are_named() -> None:
    def chosen(x: Tensor, p: Tensor) -> Tensor:
        return torch.cond(p, torch.sin, torch.cos, (x,))

    target = aotlens.inspect(chosen, torch.ones(3), torch.tensor(True)).targets[0]
    (found,) = target.operators
    assert (found.op, found.kind, found.phase) == ("cond", "higher_order", "inference")
    assert [site.text for site in found.sites] == ["torch.cond(p, torch.sin, torch.cos, (x,))"]
    wrapped = aotlens.inspect(torch.sin, TwoTensor(torch.ones(2), torch.ones(2))).targets[0]
    assert wrapped.inputs[0].tensor is not None
    assert wrapped.inputs[0].tensor.subclass == "TwoTensor"


class NoGradient(torch.autograd.Function):
    """Has an output that requires grad, and no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> None:
        return None


def steps_of(function: Callable[..., Any], *arguments: Tensor) -> dict[str, str]:
    """The reasons of the wrapper steps that apply, by title."""
    wrapper = compile_direct(function, arguments, {}, CompileOptions(backend="eager")).target().wrapper
    assert wrapper is not None
    return {step.name: step.reason for step in wrapper.steps if step.applied}


def test_a_leaf_is_made_for_its_own_reason() -> None:
    def made_leaf(x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = (x * 2).detach().requires_grad_()
        return leaf, leaf * 3

    without_gradient = steps_of(NoGradient.apply, torch.ones(3, requires_grad=True))
    assert without_gradient["make leaves"] == "no input gets a gradient, but outputs require grad"
    assert steps_of(made_leaf, torch.ones(3))["make leaves"] == "the function calls requires_grad_ itself"


def test_versions_are_raised_before_the_graphs_for_their_own_reason() -> None:
    def transposed(x: Tensor) -> Tensor:
        return x.t_() * 2

    def transposed_view(x: Tensor) -> Tensor:
        x[0:1].t_()
        return x * 2

    def overlapping(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return y * 2

    base = torch.ones(4, requires_grad=True) * 1
    title = "raise version counters before the graphs"
    assert (
        steps_of(transposed, torch.ones(2, 3))[title]
        == "sizes or strides of an input change, for which autograd raises the version counter"
    )
    assert (
        steps_of(transposed_view, torch.ones(2, 3))[title]
        == "a view of an input changes its sizes or strides, for which autograd raises the version counter"
    )
    assert (
        steps_of(overlapping, base[:3], base[1:])[title]
        == "overlapping inputs are written through their base, which may not raise the counter of each"
    )
