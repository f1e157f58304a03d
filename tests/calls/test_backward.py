"""The backward: surroundings that it refuses, when it is compiled, what it lets go of."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.torch_api.modes import TorchDispatchMode
from aotlens.torch_api.operators import pytree
from tests.calls.test_second_derivatives import EAGER, Straight, compiled, nothing, written
from tests.programs.program import leaf, plain

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("policy", ["min-cut", "default", "save:t"])
def test_a_weight_of_which_a_view_is_saved_must_not_be_written_to_before_the_backward(policy: str) -> None:
    layer, x = nn.Linear(3, 3, bias=False), leaf(2, 3)
    out = compiled(layer, x, options=CompileOptions(backend="eager", policy=policy)).call(x)
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_view_of_other_elements_is_saved_with_its_input() -> None:
    def product(z: Tensor, y: Tensor) -> Tensor:
        return torch.view_as_real(z) * y

    z, y = torch.randn(3, dtype=torch.complex64).requires_grad_(), leaf(3, 2)
    call = compiled(product, z, y, options=CompileOptions(backend="eager", policy="default")).call
    assert torch.equal(torch.autograd.grad(call(z, y).sum(), y)[0], torch.view_as_real(z))
    out = call(z, y).sum()
    with torch.no_grad():
        z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_a_backward_that_fails_in_eager_names_the_line_and_is_in_the_report() -> None:
    def overwritten(x: Tensor) -> Tensor:
        hidden = x.exp()
        hidden.mul_(2)
        return hidden

    x = leaf(3)
    found = compiled(overwritten, x)
    out = found.call(x)
    torch.testing.assert_close(out, overwritten(x))
    message = r"`overwritten` fails, in eager too: .*modified by an inplace operation.*: `x.exp\(\)`"
    with pytest.raises(RuntimeError, match=message):
        out.sum().backward()
    (finding,) = (entry for entry in found.target().diagnostics if entry.code == "AL702")
    assert finding.span is not None
    assert "x.exp()" in finding.message


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_deterministic_mode_after_the_forward() -> None:
    x = leaf(3)
    out = compiled(torch.sin, x, options=CompileOptions(backend=nothing)).call(x).sum()
    with deterministic(), pytest.raises(RuntimeError, match="use_deterministic_algorithms"):
        out.backward()


def test_the_graphs_own_text_follows_deterministic_mode_as_eager_does() -> None:
    x = leaf(3)
    out = compiled(torch.sin, x).call(x).sum()
    with deterministic():
        out.backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, x.cos().detach())


def test_deterministic_mode_throughout() -> None:
    x = leaf(3)
    with deterministic():
        compiled(torch.sin, x, options=CompileOptions(backend=nothing)).call(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("left", ["autocast", "default dtype", "deterministic"])
def test_a_mode_left_changed_is_refused_and_put_back(left: str) -> None:
    changes: dict[str, Callable[[], object]] = {
        "autocast": lambda: torch.set_autocast_enabled("cpu", True),
        "default dtype": lambda: torch.set_default_dtype(torch.float64),
        "deterministic": lambda: torch.use_deterministic_algorithms(True),
    }

    def leaves(x: Tensor) -> Tensor:
        changes[left]()
        return x * 2

    with pytest.raises(UnsupportedError, match=left):
        compiled(leaves, plain(3))
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_default_dtype() is torch.float32
    assert not torch.are_deterministic_algorithms_enabled()


def test_autocast_switched_off_inside() -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            hidden = x @ w
        return hidden @ w.t()

    x, w = leaf(3, 4), leaf(4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, found = step(x, w), compiled(step, x, w).call(x, w)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(
        torch.autograd.grad(found.float().sum(), (x, w)), torch.autograd.grad(expected.float().sum(), (x, w))
    )


def test_hooks_of_the_caller_run_at_run_time_only() -> None:
    x, seen = leaf(3), []

    def pack(tensor: Tensor) -> Tensor:
        seen.append(type(tensor))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call = compiled(torch.sin, x).call
        assert seen == []
        out = call(x)
    assert seen == [Tensor]
    out.sum().backward()


def count_calls(calls: list[str]) -> Callable[..., Any]:
    def backend(gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        calls.append(type(gm).__name__)
        return nothing(gm, inputs)

    return backend


@pytest.mark.parametrize(("lazy", "expected"), [(True, ["forward"]), (False, ["forward", "backward"])])
def test_when_the_backward_is_compiled(lazy: bool, expected: list[str]) -> None:
    calls: list[str] = []
    options = CompileOptions(backend=count_calls(calls), lazy_backward=lazy)
    x = leaf(3)
    call = compiled(torch.sin, x, options=options).call
    assert calls == expected
    call(x).sum().backward()
    assert calls == ["forward", "backward"]


def test_a_backward_inside_autocast_keeps_its_types() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    out = compiled(torch.matmul, x, w).call(x, w)
    assert torch.autograd.grad(out.sum(), x)[0].dtype is torch.float32


class Alive(TorchDispatchMode):
    """Notes at each operator how many of the watched tensors are alive."""

    def __init__(self, watched: list[Any]) -> None:
        super().__init__()
        self.watched = watched
        self.counts: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mul.Tensor:
            self.counts.append(sum(reference() is not None for reference in self.watched))
        return func(*args, **(kwargs or {}))


def test_activations_are_freed_as_the_backward_goes() -> None:
    x = leaf(4)
    options = CompileOptions(backend="eager", policy="default")
    out = compiled(lambda x: x.exp().exp().exp() * 2, x, options=options).call(x).sum()
    node: Any = out.grad_fn.next_functions[0][0]
    watched = [weakref.ref(saved) for saved in node.saved_tensors]
    with Alive(watched) as alive:
        out.backward()
    assert alive.counts == [3, 3, 2, 1]


def test_saved_values_are_donated_unless_somebody_holds_them() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    found = compiled(lambda x, w: (x @ w).sigmoid().exp(), x, w)
    donated = {saved.node.target: saved.donated for saved in found.parts.saved}
    assert donated["aten.sigmoid.default"]
    assert not any(saved.donated for saved in found.parts.saved if saved.owner is not None)
    partition = found.target().partition
    assert partition is not None
    assert [saved.donated for saved in partition.saved].count(True) == 1


@pytest.mark.rotates
def test_a_retained_graph_keeps_what_a_backend_may_write_over() -> None:
    def step(x: Tensor) -> Tensor:
        return torch.tanh(x.exp() * 3).square().sum() * x.sum()

    x = leaf(40)
    out = compiled(step, x, options=CompileOptions(backend="inductor", policy="default")).call(x)
    first = torch.autograd.grad(out, x, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(out, x), first)
    torch.testing.assert_close(first, torch.autograd.grad(step(x), x))


def test_forward_mode_around_a_compiled_function_is_refused() -> None:
    x = plain(3)
    call = compiled(torch.sin, x).call
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="dual tensor of forward-mode AD"):
        call(forward_ad.make_dual(x, torch.ones(3)))
    train = compiled(lambda w, given: given.sin() * w, leaf(3), x).call
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="`given` is a dual tensor of forward-m"):
        train(leaf(3), forward_ad.make_dual(x, torch.ones(3)))
    torch.testing.assert_close(torch.func.jvp(call, (x,), (torch.ones(3),))[1], x.cos())


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad])
def test_transforms_around_a_function_that_compiles_at_its_first_call(transform: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"a transform of torch.func .* around a compiled function"):
        transform(aotlens.compile(lambda x: x.sin().sum(), options=EAGER))(plain(3, 4))


@pytest.mark.rotates
def test_compiled_autograd() -> None:
    from torch._dynamo import compiled_autograd  # heavy, and for this test alone

    x, w = leaf(3, 4), leaf(4, 5)
    expected = torch.autograd.grad((x @ w).sigmoid().sum(), (x, w))
    out = compiled(lambda x, w: (x @ w).sigmoid(), x, w).call(x, w).sum()
    with compiled_autograd._enable(lambda gm: torch.compile(gm, backend="eager")):
        out.backward()
    torch.testing.assert_close([x.grad, w.grad], list(expected))


def test_a_generator_of_ones_own_does_not_compile_again() -> None:
    call: Any = aotlens.compile(lambda x, g: x * torch.rand(3, generator=g), options=EAGER)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        expected = torch.rand(3, generator=generator.clone_state())
        torch.testing.assert_close(call(torch.ones(3), generator), expected)
    assert len(call.compiled) == 1


class Cut(torch.autograd.Function):
    """Gives no gradient for a result that is used all the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None


def through_custom(x: Tensor, w: Tensor) -> Tensor:
    return Straight.apply(x * w).exp() * w


def separate(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp(), (w * 2).sin()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [written, through_custom, separate], ids=lambda one: one.__name__)
def test_no_gradient_for_any_result_is_none_for_every_leaf(function: Any, dynamic: bool) -> None:
    def gradients(called: Any) -> list[bool]:
        x, w = leaf(3, 4), leaf(3, 4)
        results = pytree.tree_leaves(called(x * 1 if function is written else x, w))
        sum(Cut.apply(result).sum() for result in results).backward()
        return [tensor.grad is None for tensor in (x, w)]

    options = CompileOptions(backend="eager", dynamic=dynamic)
    module = compile_direct(
        function, (leaf(3, 4) * 1 if function is written else leaf(3, 4), leaf(3, 4)), {}, options
    )
    assert gradients(module.call) == gradients(function)


def one_result(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).exp()


@pytest.mark.parametrize("function", [one_result, separate], ids=lambda one: one.__name__)
def test_gradcheck(function: Any) -> None:
    args = [torch.rand(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    call = compiled(function, *args).call
    assert torch.autograd.gradcheck(call, args)
    assert torch.autograd.gradgradcheck(call, args)


def leaves_gradients(x: Tensor, y: Tensor) -> Tensor:
    (x * x * y).sum().backward()
    return x.detach() * 1


def takes_away(x: Tensor, y: Tensor) -> Tensor:
    x.grad = None
    return x * y


def reads(x: Tensor, y: Tensor) -> Tensor:
    return x * y if x.grad is None else x


@pytest.mark.parametrize("fn", [leaves_gradients, takes_away, reads])
@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_gradient_of_an_input_is_refused_and_left_alone(fn: Any, has_gradient: bool) -> None:
    x, y = leaf(3), leaf(3)
    x.grad = before = torch.ones(3) if has_gradient else None
    with pytest.raises(UnsupportedError, match=r"reads or changes `x.grad`"):
        compile_direct(fn, (x, y), {}, EAGER)
    assert x.grad is before
    assert y.grad is None


def test_a_backward_inside_into_a_parameter_leaves_no_fake_gradient() -> None:
    layer = torch.nn.Linear(3, 2)

    def step(x: Tensor) -> Tensor:
        loss = layer(x).square().mean()
        loss.backward()
        return loss.detach()

    with pytest.raises(UnsupportedError, match=r"weight\.grad"):
        compile_direct(step, (torch.randn(4, 3),), {}, EAGER)
    assert layer.weight.grad is None


def test_an_optimizer_that_holds_the_callers_parameters_is_refused() -> None:
    """Its parameters are the caller's own tensors, whose gradients the recording does not have."""
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(UnsupportedError, match="the step of an optimizer that is created outside"):
        compile_direct(step, (torch.randn(4, 3),), {}, EAGER)
    assert layer.weight.grad is None


def test_a_gradient_that_is_kept_of_what_is_written_to_is_refused() -> None:
    x, w = leaf(3, 4) * 1, leaf(3, 4)
    call = compiled(written, leaf(3, 4) * 1, w).call
    call(leaf(3, 4) * 1, w)
    x.retain_grad()
    before = x.detach().clone()
    with pytest.raises(RuntimeError, match=r"writes to `x`, on which `retain_grad` was called"):
        call(x, w)
    assert torch.equal(x, before)
