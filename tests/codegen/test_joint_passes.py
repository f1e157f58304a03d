"""Inductor's passes over the joint graph: what they change, where it stands, and that values stay eager's."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aotlens.compiled import Compiled
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.joint.inductor_passes import with_joint_passes
from aotlens.joint.records import JointProgram
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct, trace_direct

Loss = Callable[..., Tensor]
INDUCTOR = CompileOptions("inductor")
FUSED = "aten._scaled_dot_product_flash_attention_for_cpu.default"
FUSED_BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return torch.softmax(scores, -1) @ value


def with_a_mask(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    mask = torch.ones(query.shape[-2], query.shape[-2], dtype=torch.bool).tril()
    scores = (query @ key.transpose(-2, -1) / 4.0).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, -1) @ value


class Block(nn.Module):
    """Attention within a layer: what is around it stays as it was recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.take, self.give = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.take(self.norm(x)).split(32, -1)
        mixed = (
            attend(*(part.view(2, 8, 4, 8).transpose(1, 2) for part in parts))
            .transpose(1, 2)
            .reshape(2, 8, 32)
        )
        return x + self.give(mixed).relu()


def compiled(function: Any, *args: Tensor, **options: Any) -> Compiled:
    return compile_direct(function, args, {}, CompileOptions("inductor", **options))


def heads(grad: bool = True) -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, 4, 8, 16, requires_grad=grad) for _ in range(3))


def changed(function: Any, *args: Tensor) -> JointProgram:
    """The joint program after the passes, without code for it."""
    return with_joint_passes(trace_direct(function, args, {}, INDUCTOR), {})


def targets(joint: JointProgram) -> list[str]:
    return [node.target for node in joint.program.nodes]


@pytest.mark.rotates
@pytest.mark.parametrize("function", [attend, with_a_mask])
def test_values_and_gradients_are_eagers(function: Loss) -> None:
    args = heads()
    found, expected = compiled(function, *args).call(*args), function(*args)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(out.sin().sum(), args) for out in (found, expected)))


def test_attention_written_by_hand_becomes_one_operator() -> None:
    joint = changed(attend, *heads())
    assert targets(joint)[0] == FUSED
    assert not {"aten.bmm.default", "aten._softmax.default", "aten.exp.default"} & set(targets(joint))
    assert joint.before_passes is not None
    assert "aten.bmm.default" in {node.target for node in joint.before_passes.nodes}


def test_in_inference_too() -> None:
    args = heads(grad=False)
    found = compiled(attend, *args)
    assert FUSED in targets(found.parts.joint)
    torch.testing.assert_close(found.call(*args), attend(*args))


def test_what_is_put_in_stands_at_the_users_expression_on_its_side() -> None:
    nodes = changed(Block(), torch.randn(2, 8, 32, requires_grad=True)).program.nodes
    put = [node for node in nodes if node.origin.stage == "joint passes"]
    fused = {node.target: node for node in put if node.target in (FUSED, FUSED_BACKWARD)}
    lines = {node.origin.location.innermost.line for node in fused.values() if node.origin.location.innermost}
    assert lines == {attend.__code__.co_firstlineno + 2}
    forward = fused[FUSED]
    backward = fused[FUSED_BACKWARD]
    assert (forward.origin.backward, backward.origin.backward) == (False, True)
    assert all(node.origin.reason.startswith("added by an Inductor pass, ") for node in put)


def test_what_a_pass_leaves_alone_is_the_same_node() -> None:
    """What reads a changed node is another node, with the same name at the same place."""
    joint = changed(Block(), torch.randn(2, 8, 32, requires_grad=True))
    assert joint.before_passes is not None
    before = {node.name: node for node in joint.before_passes.nodes}
    nodes = joint.program.nodes
    attention = next(at for at, node in enumerate(nodes) if node.target == FUSED)
    kept = [node for node in nodes[:attention] if node.origin.stage != "joint passes"]
    assert kept == [before[node.name] for node in kept]
    assert "var_mean" in {node.name for node in kept}
    others = [node for node in nodes if node.origin.stage != "joint passes"]
    assert all(node.origin is before[node.name].origin for node in others)
    assert len({node.name for node in nodes}) == len(nodes)


@pytest.mark.rotates
def test_a_derivative_of_the_backward_after_a_pass() -> None:
    def noisy(x: Tensor) -> Tensor:
        return (functional.dropout(x * torch.ones(8), 0.5) * x.exp()).sin()

    x = torch.randn(8, requires_grad=True)
    found = compiled(noisy, x)
    assert found.parts.joint.before_passes is not None
    (first,) = torch.autograd.grad(found.call(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    kept = first != noisy_gradient(x, torch.zeros(8))
    torch.testing.assert_close(first.detach(), noisy_gradient(x, kept * 2.0).detach())
    (expected,) = torch.autograd.grad(noisy_gradient(x, kept * 2.0).square().sum(), x)
    torch.testing.assert_close(second, expected)


def noisy_gradient(x: Tensor, mask: Tensor) -> Tensor:
    return torch.autograd.grad((x * mask * x.exp()).sin().sum(), x, create_graph=True)[0]


def test_the_report_shows_both_programs() -> None:
    target = compiled(attend, *heads()).target()
    assert [(stage.name, stage.parent) for stage in target.stages][-4:] == [
        ("joint", "decomposed"),
        ("joint_passes", "joint"),
        ("forward", "joint_passes"),
        ("backward", "joint_passes"),
    ]


def test_nothing_changes_without_something_to_change() -> None:
    joint = trace_direct(lambda x: (x * 2).sin(), (torch.randn(4, requires_grad=True),), {}, INDUCTOR)
    assert with_joint_passes(joint, {}) is joint


@pytest.mark.rotates
def test_a_value_that_is_the_same_everywhere_folds() -> None:
    def scaled(x: Tensor) -> Tensor:
        return (x * torch.ones(4, 4) + torch.zeros(4, 4)).exp()

    x = torch.randn(4, 4, requires_grad=True)
    found = compiled(scaled, x)
    assert "aten.add.Tensor" not in targets(found.parts.joint)
    torch.testing.assert_close(found.call(x), x.exp())


def test_no_input_is_handed_out_in_place_of_a_copy() -> None:
    joint = trace_direct(lambda x: (x * torch.ones(4)).t(), (torch.randn(4, 4),), {}, INDUCTOR)
    assert with_joint_passes(joint, {}) is joint


def test_inputs_that_change_places_keep_their_old_values() -> None:
    def swapped(x: Tensor, y: Tensor) -> None:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    joint = trace_direct(swapped, (torch.zeros(4), torch.ones(4)), {}, INDUCTOR)
    assert with_joint_passes(joint, {}) is joint


@pytest.mark.rotates
def test_a_copy_of_an_input_that_is_written_to_stays() -> None:
    def swapped(x: Tensor, weight: Tensor) -> Tensor:
        old = x.clone()
        x.mul_(0.5)
        return attend(old, old * weight, x)

    def given() -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        return torch.randn(1, 2, 8, 16), torch.randn(16, requires_grad=True)

    args, twins = given(), given()
    found, expected = compiled(swapped, *args).call(*args), swapped(*twins)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(args[0], twins[0])
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), args[1]), torch.autograd.grad(expected.sum(), twins[1])
    )


@pytest.mark.rotates
@pytest.mark.parametrize("options", [{"dynamic": True}, {"policy": "default"}])
def test_other_ways_to_compile(options: dict[str, Any]) -> None:
    args = heads()
    found, expected = compiled(attend, *args, **options).call(*args), attend(*args)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(out.sin().sum(), args) for out in (found, expected)))


def test_inductors_own_switch_turns_them_off() -> None:
    joint = trace_direct(attend, heads(), {}, INDUCTOR)
    assert with_joint_passes(joint, {"use_joint_graph_passes": False}) is joint


@pytest.mark.rotates
def test_behind_dynamo_too() -> None:
    seen: list[Compiled] = []
    torch.compiler.reset()
    with observing(on_compiled=seen.append):
        call = torch.compile(attend, backend=dynamo_backend(INDUCTOR))
        given = heads()
        found = call(*given)
    torch.testing.assert_close(found, attend(*given))
    assert FUSED in targets(seen[0].parts.joint)
    torch.compiler.reset()


@pytest.mark.rotates
def test_symbolic_sizes_stay_symbols_behind_dynamo() -> None:
    seen: list[Compiled] = []
    torch.compiler.reset()
    with observing(on_compiled=seen.append):
        call = torch.compile(attend, backend=dynamo_backend(INDUCTOR), dynamic=True)
        for length in (8, 12):
            given = tuple(torch.randn(2, 4, length, 16, requires_grad=True) for _ in range(3))
            torch.testing.assert_close(call(*given), attend(*given))
    assert len(seen) == 1
    assert seen[0].parts.joint.before_passes is None
    torch.compiler.reset()
