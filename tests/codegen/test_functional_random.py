"""Random numbers as functions of a seed and an offset, with a counter-based generator on the CPU.

What only a GPU can show (its own generator, its operator) is in `tests/gpu/`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._functorch import config
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch.utils.checkpoint import checkpoint

from aotlens import (
    UnsupportedError,
    aot_function,
    aot_module_simplified,
    default_partition,
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from aotlens.capture.rng import rng_state
from aotlens.compiled import Compiled
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct, compile_graph_module
from tests.engine.philox import SOURCE, STATE, Eager, philox, seeded

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(rng_state.RANDOM_SOURCES, "cpu", SOURCE)
    with config.patch(functionalize_rng_ops=True):
        yield


def compiled(fn: Callable[..., Any], *args: Any, **options: Any) -> Compiled:
    return compile_direct(fn, args, {}, CompileOptions(**{"backend": "eager", **options}))


def draw_count(nodes: Any) -> int:
    return sum(node.op is SOURCE.operator for node in nodes)


def leaf(*sizes: int) -> Tensor:
    return torch.randn(sizes, requires_grad=True)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_generator_gives_the_published_vectors(counter: Any, key: Any, expected: Any) -> None:
    assert philox(counter, key) == expected


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.rand_like(x) * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * torch.rand_like(x) * x.cos()


def in_both(x: Tensor) -> Tensor:
    return Noisy.apply(torch.rand_like(x) * x).sin() * torch.rand(3)


def forward_only(x: Tensor) -> Tensor:
    return x.sin() * torch.rand_like(x)


def backward_only(x: Tensor) -> Tensor:
    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * torch.rand_like(gradient)

    return Late.apply(x)


def nothing_drawn(x: Tensor) -> Tensor:
    return x.sin()


def unused_draw(x: Tensor) -> Tensor:
    torch.rand(5)
    return x * torch.rand(3)


def transposed(x: Tensor) -> Tensor:
    return x * torch.rand_like(x)


@pytest.mark.parametrize("policy", ["min-cut", "default"])
@pytest.mark.parametrize("fn", [in_both, forward_only, backward_only, nothing_drawn, unused_draw])
def test_values_gradients_and_state_are_eagers(fn: Callable[..., Any], policy: str) -> None:
    x = leaf(4, 3)
    call = compiled(fn, x, policy=policy).call
    for seed in (3, 2**40 + 1):
        found = []
        for function, mode in ((call, None), (fn, Eager())):
            with seeded(seed, 8) as state:
                if mode is not None:
                    mode.__enter__()
                out = function(x)
                between = state.offset
                (gradient,) = torch.autograd.grad(out.sum(), x)
                if mode is not None:
                    mode.__exit__(None, None, None)
                found.append((out, gradient, between, state.offset))
        torch.testing.assert_close(found[0], found[1])


def test_inference_draws_and_advances() -> None:
    x = torch.randn(4, 3)
    call = compiled(unused_draw, x).call
    with seeded(5) as state:
        first, second = call(x), call(x)
        after = state.offset
    with seeded(5) as state, Eager():
        torch.testing.assert_close((first, second), (unused_draw(x), unused_draw(x)))
        assert state.offset == after > 0


def test_graphs_follow_the_convention_of_functorch() -> None:
    seen: dict[str, tuple[list[str], int]] = {}

    def compiler(name: str) -> Callable[..., Any]:
        def compile_graph(module: Any, inputs: list[Any]) -> Any:
            names = [node.name for node in module.graph.find_nodes(op="placeholder")]
            assert len(inputs) == len(names)
            seen[name] = (names, len(module.graph.output_node().args[0]))
            return make_boxed_func(module.forward)

        return compile_graph

    x = leaf(4, 3)
    for partition in (min_cut_rematerialization_partition, default_partition):
        function = aot_function(in_both, compiler("forward"), compiler("backward"), partition)
        with seeded(3) as state:
            function(x).sum().backward()
            assert state.offset == 12 + 12 + 4 + 12
        names, outputs = seen["forward"]
        assert names == ["primals_1", "fwd_seed_1", "fwd_base_offset_1"]
        saved = outputs - 2
        names, outputs = seen["backward"]
        assert names[saved:] == ["tangents_1", "bwd_seed_1", "bwd_base_offset_1"]
        assert outputs == 2  # the gradient, the new offset
    aot_function(unused_draw, compiler("inference"))(torch.randn(4, 3))
    assert seen["inference"] == (["arg0_1", "arg1_1", "arg2_1"], 2)


def dropped(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x.sin(), 0.6)


def test_checkpoint_draws_again_from_the_same_place() -> None:
    def fn(x: Tensor) -> Tensor:
        return checkpoint(dropped, x, use_reentrant=False)

    x = leaf(500, 3)
    made = compiled(fn, x)
    assert draw_count(made.parts.forward.nodes) == draw_count(made.parts.backward.nodes) == 1  # type: ignore[union-attr]
    with seeded(4):
        out = made.call(x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient == 0, out == 0)
    assert 0.55 < (out == 0).float().mean() < 0.65


@pytest.mark.parametrize("partition", [min_cut_rematerialization_partition, default_partition])
def test_dropout_has_one_mask(partition: Any) -> None:
    x = leaf(500, 3)
    function = aot_function(dropped, lambda module, _: module, partition_fn=partition)
    with seeded(4):
        out = function(x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient == 0, out == 0)


@pytest.mark.rotates
def test_inductor_draws_the_same() -> None:
    x = leaf(40, 3)
    found = []
    for backend in ("eager", "inductor"):
        call = compiled(dropped, x, backend=backend).call
        with seeded(4):
            out = call(x)
            found.append((out, *torch.autograd.grad(out.sum(), x), STATE.offset))
    torch.testing.assert_close(found[0], found[1])


def test_symbolic_sizes_count_by_the_size_of_the_call() -> None:
    call = compiled(forward_only, leaf(4, 3), dynamic=True).call
    for rows, expected in ((5, 16), (9, 28)):
        with seeded(4) as state:
            x = leaf(rows, 3)
            out = call(x)
            assert state.offset == expected
        with seeded(4), Eager():
            torch.testing.assert_close(out, forward_only(x))


DRAWS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "uniform_": (lambda x: x.clone().uniform_(2, 4), 3, 4 / 12),
    "normal_": (lambda x: x.clone().normal_(2, 3), 2, 9),
    "randn": (lambda x: torch.randn(4000) + x * 0, 0, 1),
    "randn_like": (torch.randn_like, 0, 1),
    "normal of tensors": (lambda x: torch.normal(x * 0 + 1, x * 0 + 2), 1, 4),
    "normal of a mean": (lambda x: torch.normal(x * 0 + 1, 2.0), 1, 4),
    "normal of a size": (lambda x: torch.normal(1.0, 2.0, (4000,)) + x * 0, 1, 4),
    "bernoulli": (lambda x: torch.bernoulli(x * 0 + 0.25), 0.25, 0.1875),
    "bernoulli_": (lambda x: x.clone().bernoulli_(0.25), 0.25, 0.1875),
    "exponential_": (lambda x: x.clone().exponential_(2.0), 0.5, 0.25),
    "randint": (lambda x: torch.randint(2, 8, (4000,)) + x * 0, 4.5, 35 / 12),
    "randint_like": (lambda x: torch.randint_like(x, 6), 2.5, 35 / 12),
    "random_": (lambda x: x.clone().random_(0, 6), 2.5, 35 / 12),
}


@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name: str) -> None:
    fn, mean, variance = DRAWS[name]
    x = torch.randn(4000)
    with seeded(11) as state:
        out = compiled(fn, x).call(x)
        assert state.offset >= 4000
    assert (out.shape, out.dtype) == (x.shape, x.dtype)
    assert abs(out.mean() - mean) < 4 * (variance / 4000) ** 0.5
    assert abs(out.var() - variance) < 0.15 * variance


def test_permutation() -> None:
    with seeded(2):
        out = compiled(lambda: torch.randperm(50)).call()
    assert sorted(out.tolist()) == list(range(50)) != out.tolist()


def test_a_generator_of_the_users_own_stays_one() -> None:
    def fn(x: Tensor, generator: torch.Generator) -> Tensor:
        return x * torch.rand(3, generator=generator)

    x = leaf(4, 3)
    call = compiled(fn, x, torch.Generator().manual_seed(1)).call
    with seeded(2) as state:
        out = call(x, torch.Generator().manual_seed(7))
        assert state.offset == 0
    torch.testing.assert_close(out, fn(x, torch.Generator().manual_seed(7)))


def saved_and_restored(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first = torch.rand_like(x) * x
    state = torch.cuda.get_rng_state()
    second = torch.rand_like(x) * x
    torch.cuda.set_rng_state(state)
    return first, second, torch.rand_like(x) * x


def test_state_saved_and_restored_inside() -> None:
    x = leaf(4, 3)
    with seeded(2) as state:
        first, second, third = compiled(saved_and_restored, x).call(x)
        assert state.offset == 24
    assert torch.equal(second, third)
    assert not torch.equal(first, second)


def test_draw_without_a_rule_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=re.escape("`aten.rand.default` with functional RNG")):
        compiled(lambda: torch.rand(4, dtype=torch.complex64))


@pytest.mark.parametrize("name", ["poisson", "_standard_gamma", "_sample_dirichlet"])
def test_an_operator_that_searches_for_a_number_is_unsupported(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"`aten.{name}.default` with functional RNG"):
        compiled(getattr(torch, name), torch.rand(4))


WITHOUT_A_RULE: dict[str, Callable[[Tensor], Tensor]] = {
    "geometric_": lambda x: x.clone().geometric_(0.5),
    "log_normal_": lambda x: x.clone().log_normal_(),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "rrelu": lambda x: torch.nn.functional.rrelu(x, training=True),
    "multinomial": lambda x: torch.multinomial(x, 2),
}


@pytest.mark.parametrize("name", WITHOUT_A_RULE)
def test_a_rare_distribution_is_unsupported(name: str) -> None:
    with pytest.raises(UnsupportedError) as told:
        compiled(WITHOUT_A_RULE[name], torch.rand(4))
    assert told.value.name == "functional-rng-operator"


@mark_compile_region
def noisy_region(x: Tensor) -> Tensor:
    return x.sin() * torch.rand_like(x)


def by_regions(x: Tensor) -> Any:
    return noisy_region(noisy_region(x)), torch.rand_like(x)


def by_calls(x: Tensor) -> Any:
    for _ in range(2):
        x = x.sin() * torch.rand_like(x)
    return x, torch.rand_like(x)


def test_draws_inside_a_region() -> None:
    """A region that draws is recorded in place."""
    x = torch.rand(3, 4) + 0.5
    for options in ({}, {"dynamic": True}):
        with seeded(5):
            found = compiled(by_regions, x, **options).call(x)
        with seeded(5), Eager():
            torch.testing.assert_close(tuple(found), tuple(by_calls(x)))


@pytest.mark.rotates
@pytest.mark.parametrize("policy", ["min-cut", "default"])
def test_gradient_of_draws_inside_a_region(policy: str) -> None:
    x = leaf(3, 4)
    with torch.no_grad():
        x.abs_()
    call = compiled(by_regions, x, policy=policy).call
    found = []
    for function, mode in ((call, None), (by_calls, Eager())):
        with seeded(5), mode or nullcontext():
            results = [result for result in function(x) if result.requires_grad]
            found.append(torch.autograd.grad(results, x, [torch.ones_like(one) for one in results]))
    torch.testing.assert_close(found[0], found[1])


def test_draw_in_a_branch_is_refused() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * torch.rand_like(x), lambda x: x.clone(), (x,))

    with pytest.raises(UnsupportedError, match="in a subgraph of a higher-order operator"):
        compiled(fn, torch.rand(4))


def test_draw_in_the_condition_of_a_loop_is_refused() -> None:
    def fn(x: Tensor) -> Tensor:
        return while_loop(lambda x: (x + torch.rand_like(x)).sum() < 9, lambda x: (x + 1,), (x,))[0]

    with pytest.raises(UnsupportedError, match="in a subgraph of a higher-order operator"):
        compiled(fn, torch.rand(4))


def test_second_derivative_reads_what_was_drawn() -> None:
    x = leaf(4, 3)
    found = []
    for function, mode in ((compiled(forward_only, x).call, None), (forward_only, Eager())):
        with seeded(3), mode or nullcontext():
            out = function(x)
            (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            found.append(torch.autograd.grad(gradient.sum(), x))
    torch.testing.assert_close(found[0], found[1])


def test_second_derivative_of_a_backward_that_draws_is_refused() -> None:
    x = leaf(4, 3)
    with seeded(3) as state:
        out = compiled(backward_only, x).call(x)
        (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        assert state.offset == 12
    with pytest.raises(RuntimeError, match="its backward uses random numbers"):
        gradient.sum().backward()


def random_steps(fn: Callable[..., Any], x: Tensor) -> list[Any]:
    wrapper = compiled(fn, x).target().wrapper
    assert wrapper is not None
    return [step for step in wrapper.steps if "RNG state" in step.name]


def test_report_shows_what_the_wrapper_does() -> None:
    x = leaf(4, 3)
    steps = random_steps(in_both, x)
    assert [step.name for step in steps] == 2 * ["read RNG state", "advance RNG state"]
    assert all(step.applied and "seed and offset" in step.reason for step in steps)
    assert any("rand_like(" in site.text for step in steps for site in step.sites)
    assert not random_steps(nothing_drawn, x)


def test_behind_dynamo() -> None:
    def backend(module: Any, inputs: Any) -> Any:
        return compile_graph_module(module, inputs, CompileOptions(backend="eager")).call

    torch._dynamo.reset()
    x = leaf(4, 3)
    with seeded(6):
        out = torch.compile(forward_only, backend=backend)(x)
    with seeded(6), Eager():
        torch.testing.assert_close(out, forward_only(x))


class OnCuda(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (torch.nn.functional.dropout(x, 0.6) * torch.rand_like(x) + torch.randn(3, device="cuda"),)


def test_cuda_is_traced_without_a_gpu() -> None:
    """Traced only: what runs is in `tests/gpu/`."""
    found: list[Any] = []

    def compiler(module: Any, inputs: list[Any]) -> Any:
        found.append(module)
        return make_boxed_func(module.forward)

    with torch._subclasses.FakeTensorMode():
        x = torch.empty(4, 3, device="cuda")
    aot_module_simplified(OnCuda(), [x], compiler)
    targets = [node.target for node in found[0].graph.nodes]
    assert targets.count(torch.ops.rngprims.philox_rand.default) == 4
    made = compile_direct(OnCuda(), (x,), {}, CompileOptions(backend="eager"))
    assert 'torch.cuda.get_rng_state("cuda:0").view(torch.int64).unbind()' in made.source.replace("'", '"')
    assert "torch.cuda._set_rng_state_offset((int(new_fwd_offset) + 3) // 4 * 4, " in made.source
