"""Partition choices by force: flipping what the solver chose is never better, what is forced refuses."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import aotlens
from aotlens.build.certificates import certificates
from aotlens.errors import UserError
from aotlens.joint.records import JointProgram
from aotlens.options import CompileOptions
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import Freedom, Reason
from aotlens.partition.stage import partition
from aotlens.pipeline import compile_direct
from aotlens.policy import Override, Policy
from aotlens.view.partition.reasons import budget_text
from benchmarks.models import CONV_NET, gpt_model

POLICIES = ("min-cut", "default", "budget=0.6")
MODELS = (gpt_model(2), CONV_NET)


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def noisy(x: Tensor, w: Tensor) -> Tensor:
    """Products, a mask, a softmax, a view, an argument that is written to."""
    hidden = functional.dropout(functional.gelu(x @ w), 0.3)
    weights = (hidden @ hidden.t()).softmax(-1)
    return (weights @ hidden).view(-1).sin().sum()


def joint_of(function: Callable[..., Any], *args: Any) -> JointProgram:
    return compile_direct(function, args, {}, CompileOptions(backend="eager")).joint


PROGRAMS: dict[str, Callable[[], JointProgram]] = {
    "noisy": lambda: joint_of(noisy, leaf(8, 16), leaf(16, 32)),
    **{model.name: lambda model=model: joint_of(model.make(), *model.inputs()) for model in MODELS},  # type: ignore[misc]
}


def flops(parts: Partitioned) -> int:
    return sum(value.flops for value in parts.recomputed)


def flipped(joint: JointProgram, policy: Policy, name: str, keep: str) -> Partitioned:
    return partition(joint, replace(policy, overrides=(Override(keep, name),)))  # type: ignore[arg-type]


@pytest.mark.rotates
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_flip_of_a_choice_saves_less(program: str) -> None:
    joint = PROGRAMS[program]()
    parts = partition(joint, "min-cut")
    assert parts.split is not None
    proofs = certificates(parts.split)
    chosen = [value for value in parts.saved if value.reason.freedom is Freedom.CHOICE and value.size_bytes]
    assert chosen
    for value in chosen:
        other = flipped(joint, parts.split.policy, value.node.name, "recompute")
        price = proofs[id(value.node)].price_bytes
        assert price is not None
        assert other.saved_bytes - parts.saved_bytes == price >= 0
    again = [value.node.name for value in parts.recomputed if value.reason is Reason.CHEAPER]
    for name in again[:20]:
        other = flipped(joint, parts.split.policy, name, "save")
        assert other.saved_bytes >= parts.saved_bytes


def test_no_flip_of_a_choice_within_a_budget_computes_less() -> None:
    joint = PROGRAMS["noisy"]()
    policy = Policy.parse("budget=0.5")
    parts = partition(joint, policy)
    assert parts.split is not None
    assert parts.split.choice.budget_solution is not None
    assert parts.split.choice.budget_solution.exact
    for value in parts.saved:
        if value.reason.freedom is Freedom.CHOICE and value.size_bytes:
            assert flops(flipped(joint, policy, value.node.name, "recompute")) >= flops(parts)


@pytest.mark.rotates
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_forced_refuses_the_flip_with_its_code(program: str, policy: str) -> None:
    joint = PROGRAMS[program]()
    parts = partition(joint, policy)
    assert parts.split is not None
    for value in parts.saved:
        if value.reason.freedom is not Freedom.FORCED:
            continue
        with pytest.raises(UserError, match=rf"\[{value.reason.value}\]"):
            flipped(joint, parts.split.policy, value.node.name, "recompute")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_agrees_with_eager(policy: str) -> None:
    x, w = leaf(8, 16), leaf(16, 32)
    torch.manual_seed(0)
    expected = torch.autograd.grad(noisy(x, w), (x, w))
    call = compile_direct(noisy, (x, w), {}, CompileOptions(backend="eager", policy=policy)).call
    torch.manual_seed(0)
    torch.testing.assert_close(torch.autograd.grad(call(x, w), (x, w)), expected)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
def test_a_budget_is_kept_and_exact(fraction: float) -> None:
    joint = PROGRAMS["GPT, 2 layers"]()
    default = partition(joint, "default").saved_bytes
    parts = partition(joint, f"budget={100 * fraction}%")
    assert parts.split is not None
    met = parts.split.choice.budget_solution
    assert met is not None
    assert parts.saved_bytes <= fraction * default
    assert (met.exact, met.bound_flops) == (True, flops(parts))


@pytest.mark.rotates
def test_less_budget_is_more_work() -> None:
    joint = PROGRAMS["GPT, 2 layers"]()
    work = [flops(partition(joint, f"budget={share}%")) for share in (100, 80, 60, 40, 20, 0)]
    assert work == sorted(work)
    assert work[0] == 0 < work[-1]


def test_the_frontier_has_at_least_twenty_points_none_of_which_another_beats() -> None:
    target = compile_direct(
        MODELS[0].make(), MODELS[0].inputs(), {}, CompileOptions(backend="eager")
    ).target()
    assert target.partition is not None
    points = target.partition.frontier
    assert len(points) >= 20
    for one, next_one in pairwise(points):
        assert one.saved_bytes < next_one.saved_bytes
        assert one.recompute_flops > next_one.recompute_flops


def test_an_impossible_budget_says_what_is_possible() -> None:
    with pytest.raises(
        UserError, match=r"below \d.* bytes, which every choice must save.*other random numbers"
    ):
        partition(PROGRAMS["noisy"](), "budget=16B")


def test_a_fraction_that_no_choice_meets_saves_as_little_as_possible() -> None:
    options = CompileOptions(backend="eager", policy=Policy.parse((), "1%"))
    target = compile_direct(noisy, (leaf(8, 16), leaf(16, 32)), {}, options).target()
    assert target.partition is not None
    budget = target.partition.budget
    assert budget is not None
    assert (
        budget.asked_bytes
        < budget.saved_bytes
        == min(point.saved_bytes for point in target.partition.frontier)
    )
    assert budget_text(budget).endswith("every choice saves as much")


@pytest.mark.parametrize("policy", ["min-cut", "budget=0.2"])
def test_nothing_is_recomputed_from_a_view_of_what_is_written_to_without_autograd(policy: str) -> None:
    """Autograd does not see a write to `.data`: eager's backward reads what it saved before."""

    class WritesAfterwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            turned = x.t()
            result = self.layer(turned.t()).sin().cos()
            turned.data.mul_(2)
            return result

    module = WritesAfterwards()

    def gradient(called: Callable[..., Any]) -> Tensor:
        called(leaf(4, 4).detach().t()).sum().backward()
        found, module.layer.weight.grad = module.layer.weight.grad, None
        assert found is not None
        return found

    compiled = aotlens.compile(module, options=CompileOptions(backend="eager", policy=policy))
    torch.testing.assert_close(gradient(compiled), gradient(module))


def test_overrides_by_name_and_by_line() -> None:
    def chain(x: Tensor, w: Tensor) -> Tensor:
        hidden = x @ w
        return hidden.sin().exp().sum()

    joint = joint_of(chain, leaf(4, 4), leaf(4, 4))
    line = chain.__code__.co_firstlineno + 1
    (product,) = [node.name for node in joint.program.nodes if node.target == "aten.mm.default"][:1]
    before = partition(joint, "min-cut")
    assert product in [value.node.name for value in before.saved]
    for policy in (f"recompute:{product}", f"recompute:{__file__}:{line}", f"default,recompute:{product}"):
        parts = partition(joint, policy)
        assert product not in [value.node.name for value in parts.saved]
        found = {value.node.name: value.reason.value for value in parts.recomputed}
        assert found[product] == "user"
    saved = {value.node.name: value.reason.value for value in partition(joint, "save:sin").saved}
    assert saved["sin"] == "user"


def test_an_override_that_names_nothing_offers_what_is_near() -> None:
    joint = PROGRAMS["noisy"]()
    with pytest.raises(UserError, match="names no value of the forward; did you mean `softmax`"):
        partition(joint, "recompute:softmx")
    with pytest.raises(UserError, match="computes no value of the forward; the nearest lines that do are"):
        partition(joint, f"save:{__file__}:1")


def test_a_function_over_each_value() -> None:
    joint = PROGRAMS["noisy"]()
    seen = []

    def no_softmax(value: Any) -> str | None:
        seen.append(value)
        return "recompute" if "softmax" in value.op else None

    parts = partition(joint, Policy(function=no_softmax))
    assert not [value for value in parts.saved if "softmax" in value.node.target]
    by_op = {value.op: value for value in reversed(seen)}
    assert by_op["aten._softmax.default"].tensor.short() == "f32[8, 8]"
    assert by_op["aten.mm.default"].flops == 2 * 8 * 32 * 16
    assert by_op["aten._softmax.default"].spans[0].file == __file__


def test_a_function_that_answers_something_else() -> None:
    with pytest.raises(
        UserError, match=r"returned 'keep' for `.*`; it must return 'save', 'recompute', or None"
    ):
        partition(PROGRAMS["noisy"](), Policy(function=lambda value: "keep"))


def test_random_values_in_a_checkpoint_overrule_it() -> None:
    def block(x: Tensor, w: Tensor) -> Tensor:
        return functional.dropout((x @ w).relu(), 0.5).sin()

    def marked(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(block, x, w, use_reentrant=False).sum()

    parts = partition(joint_of(marked, leaf(8, 8), leaf(8, 8)), "min-cut")
    overruled = [value for value in parts.saved if value.overruled is not None]
    assert [(value.reason.value, value.overruled) for value in overruled] == [
        ("random", "an activation checkpoint, which would recompute it")
    ]
