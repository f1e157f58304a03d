"""Random numbers on a GPU: functional ones from its generator's seed and offset, and under CUDA graphs."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch import config

from aotlens import aot_function, nop
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.fixture
def functionalized() -> Iterator[None]:
    with config.patch(functionalize_rng_ops=True):
        yield


def two_draws(x: Tensor) -> Tensor:
    return torch.rand_like(x) * torch.rand(x.shape[-1], device="cuda") * x.sin()


def uniform(x: Tensor) -> Tensor:
    return x.clone().uniform_(2, 5) * x


def mask(x: Tensor) -> Tensor:
    return torch.empty_like(x).bernoulli_(0.3) * x


def transposed(x: Tensor) -> Tensor:
    return torch.rand_like(x.t()) * x.t()


class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * torch.rand_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.rand_like(gradient)


def in_the_backward_too(x: Tensor) -> Tensor:
    return Late.apply(x.sin())


def offset() -> int:
    return int(torch.cuda.get_rng_state().view(torch.int64)[1])


@pytest.mark.usefixtures("functionalized")
@pytest.mark.parametrize("seed", [3, 2**63 + 5])
@pytest.mark.parametrize("fn", [two_draws, uniform, mask, transposed, in_the_backward_too])
def test_functional_values_and_state_are_eagers(fn: Callable[..., Any], seed: int) -> None:
    x = torch.randn(300, 40, device="cuda", requires_grad=True)
    call = compile_direct(fn, (x,), {}, CompileOptions(backend="eager")).call
    found = []
    for function in (call, fn):
        torch.cuda.manual_seed(seed)
        out = function(x)
        between = offset()
        found.append((out, *torch.autograd.grad(out.sum(), x), between, offset()))
    torch.testing.assert_close(found[0], found[1])


def dropped(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5) * 2


@pytest.mark.usefixtures("functionalized")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_functional_dropout_has_one_mask(backend: str) -> None:
    x = torch.ones(300, 40, device="cuda", requires_grad=True)
    call = compile_direct(dropped, (x,), {}, CompileOptions(backend=backend)).call
    first, second = call(x), call(x)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(gradient == 0, first == 0)
    assert not torch.equal(first, second)
    assert 0.45 < (first == 0).float().mean() < 0.55


@pytest.mark.usefixtures("functionalized")
def test_compilers_of_functorch_get_philox() -> None:
    seen: list[Any] = []

    def compiler(module: Any, inputs: Any) -> Any:
        seen.extend(node.target for node in module.graph.nodes)
        return nop(module, inputs)

    x = torch.randn(30, 4, device="cuda")
    torch.cuda.manual_seed(5)
    out = aot_function(two_draws, compiler)(x)
    torch.cuda.manual_seed(5)
    torch.testing.assert_close(out, two_draws(x))
    assert seen.count(torch.ops.rngprims.philox_rand.default) == 2


def test_captured_cuda_graph_draws_anew_and_keeps_its_mask() -> None:
    """What is drawn is saved and never drawn again, so the default generator is all that a capture needs."""
    x = torch.ones(300, 40, device="cuda", requires_grad=True)
    call = compile_direct(dropped, (x,), {}, CompileOptions(backend="eager")).call
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.autograd.grad(call(x).sum(), x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
    masks = []
    for _ in range(2):
        graph.replay()
        assert torch.equal(gradient == 0, out == 0)
        masks.append(out == 0)
    assert not torch.equal(*masks)


def seeded_inside(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first = torch.rand_like(x)
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(5)
    second = torch.rand_like(x)
    torch.cuda.set_rng_state(state)
    return first, second, x * torch.rand_like(x)


@pytest.mark.parametrize("functional", [False, True])
def test_state_set_inside_is_eagers(functional: bool) -> None:
    x = torch.randn(300, 40, device="cuda")
    options = CompileOptions(backend="eager", functional_random=functional)
    call = compile_direct(seeded_inside, (x,), {}, options).call
    found = []
    for function in (call, seeded_inside):
        torch.cuda.manual_seed(3)
        found.append((*function(x), torch.cuda.get_rng_state()))
    torch.testing.assert_close(found[0], found[1])
