"""Draws that are made again: by torch's partition functions, by a caller, in an edited joint graph."""

import operator
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import functorch.compile
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint

import aotlens
from aotlens import (
    aot_compile_joint_with_descriptors,
    aot_export_joint_with_descriptors,
    aot_function,
    make_boxed_func,
)
from aotlens.errors import UserError
from aotlens.options import CompileOptions
from aotlens.partition.rules import is_random
from aotlens.pipeline import compile_direct

HIGHER_ORDER = torch.ops.higher_order
aten = torch.ops.aten


def drawing_again(module: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """A partition function that asks torch's to save the state, and to draw again in the backward."""
    for node in module.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            node.meta |= {"recompute": CheckpointPolicy.MUST_RECOMPUTE, "ac_graph_id": 0}
    return functorch.compile.min_cut_rematerialization_partition(module, *args, **kwargs)


PARTITIONS = {
    "drawing again": drawing_again,
    "torch, default": functorch.compile.default_partition,
    "torch, min cut": functorch.compile.min_cut_rematerialization_partition,
    "aotlens, default": aotlens.default_partition,
    "aotlens, min cut": aotlens.min_cut_rematerialization_partition,
}


def dropped(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x.sin(), 0.5).cos() * torch.rand_like(x)


def fused(x: Tensor) -> Tensor:
    return torch.native_dropout(x.sin(), 0.5, True)[0].cos()


def with_its_state(x: Tensor) -> Tensor:
    _, drawn = HIGHER_ORDER.run_and_save_rng_state(aten.rand_like.default, x.detach())
    return (x.sin() * drawn).cos()


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("block", [dropped, fused, with_its_state])
def test_checkpointed_draws_are_eagers_with_every_partition(block: Callable[..., Any], name: str) -> None:
    """What was drawn is saved; one that asks for it saves the state and draws again."""
    seen: list[Any] = []

    def compiler(module: Any, inputs: list[Any]) -> Any:
        seen.extend(node.target for node in module.graph.nodes)
        return make_boxed_func(module.forward)

    def fn(x: Tensor) -> Tensor:
        return checkpoint(block, x, use_reentrant=False)

    x = torch.randn(6, 3, requires_grad=True)
    found = []
    for function in (aot_function(fn, compiler, partition_fn=PARTITIONS[name]), fn):
        torch.manual_seed(2)
        out = function(x)
        torch.rand(5)
        state = torch.get_rng_state()
        found.append((out, *torch.autograd.grad(out.sum(), x), torch.get_rng_state()))
        assert torch.equal(state, torch.get_rng_state())  # the backward draws nothing of its own
    torch.testing.assert_close(found[0], found[1])
    replays = HIGHER_ORDER.run_and_save_rng_state in seen and HIGHER_ORDER.run_with_rng_state in seen
    assert replays == (name == "drawing again" and block is not with_its_state)


def test_report_of_a_partition_that_draws_again() -> None:
    def fn(x: Tensor) -> Tensor:
        return checkpoint(dropped, x, use_reentrant=False)

    x = torch.randn(6, 3, requires_grad=True)
    options = CompileOptions(backend="eager", policy=drawing_again)
    compiled = compile_direct(fn, (x,), {}, options)
    target = compiled.target()
    assert target.partition is not None
    sources = [source.target for saved in compiled.parts.saved for source in saved.node.inputs()]
    assert any("run_and_save_rng_state" in target for target in sources)
    assert "run_with_rng_state" in compiled.source
    assert {stage.name for stage in target.stages} >= {"joint", "forward", "backward"}


def test_graph_safe_states_of_torch_are_refused_by_name() -> None:
    """Torch adds them on a GPU only."""

    def partition(module: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        forward, backward = aotlens.default_partition(module, *args, **kwargs)
        with forward.graph.inserting_after(forward.graph.find_nodes(op="placeholder")[-1]):
            forward.graph.placeholder("fwd_rng_state_0")
        return forward, backward

    x = torch.randn(3, requires_grad=True)
    with pytest.raises(UserError, match="graphsafe_rng_functionalization"):
        aot_function(lambda x: x.sin(), functorch.compile.nop, partition_fn=partition)(x)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (x.sin() * torch.rand_like(x),)


def test_edited_joint_graph_that_replays_a_draw() -> None:
    """A pass of the user's that saves the state before a draw and draws again in the backward."""
    x = torch.randn(4, 3, requires_grad=True)
    with ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, Noisy(), (x,))
        graph = joint.graph_module.graph
        (draw,) = graph.find_nodes(op="call_function", target=aten.rand_like.default)
        with graph.inserting_before(draw):
            saved = graph.call_function(
                HIGHER_ORDER.run_and_save_rng_state, (draw.target, *draw.args), dict(draw.kwargs)
            )
            state = graph.call_function(operator.getitem, (saved, 0))
            values = graph.call_function(operator.getitem, (saved, 1))
        state.meta["val"] = torch.get_rng_state()
        values.meta = dict(draw.meta)
        backward = [node for node in draw.users if node.meta["partitioner_tag"] == "is_backward"]
        with graph.inserting_before(backward[0]):
            again = graph.call_function(
                HIGHER_ORDER.run_with_rng_state, (state, draw.target, *draw.args), dict(draw.kwargs)
            )
        again.meta = dict(draw.meta, partitioner_tag="is_backward")
        draw.replace_all_uses_with(values)
        for node in backward:
            node.replace_input_with(values, again)
        graph.erase_node(draw)
        joint.graph_module.recompile()
        edited = aot_compile_joint_with_descriptors(joint)
    found = []
    for function in (edited, Noisy()):
        torch.manual_seed(2)
        (out,) = function(x)
        found.append((out, *torch.autograd.grad(out.sum(), x), torch.get_rng_state()))
    torch.testing.assert_close(found[0], found[1])


def test_graph_safe_draws_are_traced() -> None:
    """Traced only: they run on a GPU."""
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(4, 3, device="cuda")

    def fn(x: Tensor, generator: torch.Generator) -> Tensor:
        draw = aten.rand_like.default
        HIGHER_ORDER.graphsafe_run_with_rng_state(draw, x, rng_state=generator)
        return x * HIGHER_ORDER.graphsafe_run_with_rng_state(draw, x, rng_state=generator)

    compiled = compile_direct(fn, (x, torch.Generator()), {}, CompileOptions(backend="eager"))
    draws = [node for node in compiled.parts.forward.nodes if is_random(node)]
    assert [node.target for node in draws] == 2 * ["graphsafe_run_with_rng_state"]
    assert "(torch.ops.aten.rand_like.default, x, rng_state=generator)" in compiled.source


def saved_on_the_device(x: Tensor) -> Tensor:
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(5)
    made = x * 2
    torch.cuda.set_rng_state(state, 0)
    return made


def test_state_of_a_device_is_a_value_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced only: it runs on a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    compiled = compile_direct(saved_on_the_device, (torch.ones(3),), {}, CompileOptions(backend="eager"))
    assert [node.target for node in compiled.parts.forward.nodes] == [
        "get_rng_state",
        "manual_seed_all",
        "aten.mul.Tensor",
        "set_rng_state",
    ]
    assert compiled.stages()[0].program.nodes


def test_seeding_inside_seeds_no_device_while_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("seeded while tracing"))

    def fn(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return x * torch.rand(3)

    compiled = compile_direct(fn, (torch.ones(3),), {}, CompileOptions(backend="eager"))
    assert [node.target for node in compiled.parts.forward.nodes][:1] == ["manual_seed"]
