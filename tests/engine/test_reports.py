"""The report of each program says what eager does: who is mutated, what aliases what, and where it stands."""

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
