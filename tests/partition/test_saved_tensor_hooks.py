"""Hooks on saved tensors that are graph modules: in the graphs, once, and told of."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._functorch import config
from torch.autograd.graph import saved_tensors_hooks

import aotlens
from aotlens.compiled import Compiled
from aotlens.errors import UnsupportedError
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.engine.configurations import direct
from tests.engine.judging import judge
from tests.programs import PROGRAMS
from tests.programs.gradients.saved_hooks import hooks, widened
from tests.programs.program import leaf

EAGER = CompileOptions(backend="eager", policy="default")


def step(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


def arguments() -> tuple[Tensor, Tensor]:
    return leaf(3, 4), leaf(4, 5)


def compiled_under(context: AbstractContextManager[Any], fn: Callable[..., Any] = step) -> Compiled:
    with context:
        return compile_direct(fn, arguments(), {}, EAGER)


def gradients(call: Callable[..., Any], context: AbstractContextManager[Any], x: Tensor, w: Tensor) -> Any:
    with context:
        out = call(x, w)
    return torch.autograd.grad(out.sum(), (x, w))


def test_the_report_tells_what_is_packed() -> None:
    found = compiled_under(widened())
    partition = found.target().partition
    assert partition is not None
    (row,) = (value for value in partition.saved if value.bytes)
    assert (row.bytes, row.tensor.dtype, row.packs, row.code) == (3 * 5 * 8, "f64", "mm", "packed")
    assert row.reason == "the caller's saved-tensor hook `<lambda>` packs `mm` as this"
    assert row.span is not None
    assert row.span.line == step.__code__.co_firstlineno + 1
    assert partition.saved_bytes == found.parts.saved_bytes == 3 * 5 * 8
    assert "the caller's hook packs mm" in found.source
    assert "the caller's hook unpacks mm" in found.source


def test_a_hook_with_places_of_its_own_is_the_site() -> None:
    pack = fx.symbolic_trace(lambda tensor: tensor.double())
    for node in pack.graph.nodes:
        node.meta["stack_trace"] = f'  File "{__file__}", line 7, in pack\n    return tensor.double()'
    found = compiled_under(saved_tensors_hooks(pack, fx.symbolic_trace(lambda packed: packed.float())))
    (packed,) = (value.node for value in found.parts.saved if value.packs is not None)
    assert packed.origin.location.innermost is not None
    assert (packed.origin.location.innermost.file, packed.origin.location.innermost.line) == (__file__, 7)


def test_a_call_under_other_hooks_is_refused() -> None:
    found = compiled_under(widened())
    for other in (nullcontext(), widened()):
        with (
            other,
            pytest.raises(ValueError, match="the saved-tensor hooks must be the two graph modules"),
        ):
            found.call(*arguments())


def test_a_call_under_other_hooks_is_compiled_anew() -> None:
    call, (x, w) = aotlens.compile(step, options=EAGER), arguments()
    first = widened()
    other = hooks(lambda tensor: tensor.double() * 4, lambda packed: (packed / 4).float())
    plain = saved_tensors_hooks(lambda tensor: tensor.double(), lambda packed: packed.float())
    expected = gradients(step, nullcontext(), x, w)
    for context in (first, other, nullcontext(), plain, first, nullcontext()):
        torch.testing.assert_close(gradients(call, context, x, w), expected)
    made = [found.parts.packing is not None for found in call.compiled.values()]  # type: ignore[attr-defined]
    assert made == [True, True, False, False]


@pytest.mark.rotates
@pytest.mark.parametrize("dynamic", [False, True])
def test_behind_dynamo_its_guard_compiles_anew(dynamic: bool) -> None:
    torch._dynamo.reset()
    call = torch.compile(step, backend="aotlens", dynamic=dynamic, options={"backend": "eager"})
    x, w = arguments()
    first, made = widened(), list[Compiled]()
    expected = gradients(step, nullcontext(), x, w)
    with observing(on_compiled=made.append):
        for context in (first, first, nullcontext(), widened(), first):
            torch.testing.assert_close(gradients(call, context, x, w), expected)
    assert [found.parts.packing is not None for found in made] == [True, False, True]


def test_second_derivatives_read_what_was_unpacked() -> None:
    def second(call: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        x, w = arguments()
        with context:
            out = call(x, w)
        first = torch.autograd.grad(out.sum(), (x, w), create_graph=True)
        total = torch.stack([gradient.square().sum() for gradient in first]).sum()
        return torch.autograd.grad(total, (x, w))

    context = hooks(lambda tensor: tensor.double(), lambda packed: packed.float())
    for policy in ("default", "min-cut"):
        with context:
            found = compile_direct(step, arguments(), {}, CompileOptions(backend="eager", policy=policy))
        torch.testing.assert_close(second(found.call), second(step))
        assert found.parts.packing is not None
        assert found.parts.packing.values


def test_a_backward_runs_twice() -> None:
    found, (x, w) = compiled_under(context := widened()), arguments()
    with context:
        out = found.call(x, w)
    first = torch.autograd.grad(out.sum(), (x, w), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), (x, w)), first)


def test_what_unpack_gives_is_what_the_backward_reads() -> None:
    """Hooks with a loss: twice the saved value arrives."""
    context = hooks(lambda tensor: tensor * 2, lambda packed: packed.clone())
    found, (x, w) = compiled_under(context), arguments()
    with context:
        out = found.call(x, w)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient, (out.detach() * (2 * (x @ w)).cos()).detach() @ w.t().detach())


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (lambda tensor: tensor.mul_(1), lambda packed: packed),
        (lambda tensor: tensor.double(), lambda packed: packed),
        (lambda tensor: tensor.detach().numpy(), lambda packed: packed.copy()),
    ],
    ids=["writes", "another type", "numpy"],
)
def test_hooks_that_cannot_be_graphs_run_when_the_module_does(
    pack: Callable[..., Any], unpack: Callable[..., Any]
) -> None:
    found = compiled_under(hooks(pack, unpack))
    assert found.parts.packing is None
    assert "PACK" not in found.source


@pytest.mark.rotates
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("sizes", [(), (1,), (5,)])
def test_what_a_hook_keeps_is_read_at_each_call(backend: str, sizes: tuple[int, ...]) -> None:
    class Scaled(torch.nn.Module):
        scale: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.full(sizes, 2.0))

        def forward(self, tensor: Tensor) -> Tensor:
            return tensor * self.scale

    scaled, (x, w) = Scaled(), arguments()
    context = saved_tensors_hooks(fx.symbolic_trace(scaled), fx.symbolic_trace(lambda packed: packed / 2))
    with context:
        options = CompileOptions(backend=backend, policy="default")
        found = compile_direct(lambda x, w: (x @ w).sin(), (x, w), {}, options)
    torch.testing.assert_close(gradients(found.call, context, x, w)[0], (x @ w).cos() @ w.t())
    scaled.scale.zero_()
    torch.testing.assert_close(gradients(found.call, context, x, w)[0], torch.ones(3, 5) @ w.t())


def test_compilers_of_functorch_see_packed_values() -> None:
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    seen: list[str] = []

    def compiler(gm: fx.GraphModule, inputs: Any) -> Any:
        seen.append(gm.code)
        return gm

    x, w = arguments()
    expected = gradients(step, nullcontext(), x, w)
    context = hooks(lambda tensor: tensor.double(), lambda packed: packed.float())
    call = aotlens.aot_function(step, compiler, compiler)
    torch.testing.assert_close(gradients(call, context, x, w), expected)
    assert len(seen) == 2
    assert all("float64" in seen[0] and "float32" in seen[1] for _ in seen)
    theirs = aotlens.aot_function(step, compiler, compiler, partition_fn=min_cut_rematerialization_partition)
    torch.testing.assert_close(gradients(theirs, context, x, w), expected)


def test_hooks_of_which_the_backward_writes_to_a_value_run_when_the_module_does() -> None:
    (program,) = (one for one in PROGRAMS if one.name == "functions/function_mutating_in_backward")
    context = hooks(lambda tensor: tensor.clone(), lambda packed: packed.clone())
    with config.patch(saved_tensors_hooks_filtering_mode="all"):
        judge(replace(program, context=lambda: context), direct(EAGER))
        with context:
            assert compile_direct(program.make(), program.make_args(), {}, EAGER).parts.packing is None


def _data_assigned(x: Tensor) -> Tensor:
    out = x * x.sin()
    x.data = x.data * 2
    return out


def _data_scaled(x: Tensor) -> Tensor:
    out = x * x.sin()
    x.data.mul_(2)
    return out


def _result_scaled(x: Tensor) -> Tensor:
    return (x * 2).exp().mul_(3)


COPIED = (lambda tensor: tensor.clone(), lambda packed: packed)


@pytest.mark.parametrize("made", [saved_tensors_hooks, hooks], ids=["run time", "graphs"])
@pytest.mark.parametrize("fn", [_data_assigned, _data_scaled, _result_scaled])
def test_a_saved_value_that_changes_under_hooks_is_refused_at_its_line(
    fn: Callable[[Tensor], Tensor], made: Callable[..., AbstractContextManager[Any]]
) -> None:
    """Without hooks the backward reads the new value, or fails; a hook may have kept the old."""
    call, first = aotlens.compile(fn, options=EAGER), fn.__code__.co_firstlineno
    call(leaf(3))
    with (
        made(*COPIED),
        pytest.raises(UnsupportedError, match="saved for the backward and mutated before it runs") as refused,
    ):
        call(leaf(3))
    assert refused.value.span is not None
    assert refused.value.span.line == first + 1


@pytest.mark.parametrize("fn", [_data_assigned, _data_scaled])
def test_what_hides_a_change_and_was_compiled_without_hooks_is_not_called_under_them(
    fn: Callable[[Tensor], Tensor],
) -> None:
    found = compile_direct(fn, (leaf(3),), {}, EAGER)
    with saved_tensors_hooks(*COPIED), pytest.raises(ValueError, match="where autograd does not see it"):
        found.call(leaf(3))


def test_statistics_that_the_backward_does_not_read_may_change_under_hooks() -> None:
    norm, x = torch.nn.BatchNorm1d(4), leaf(3, 4)
    with saved_tensors_hooks(*COPIED):
        found = compile_direct(norm, (x,), {}, EAGER).call(x)
    torch.testing.assert_close(found, torch.nn.BatchNorm1d(4)(x))
