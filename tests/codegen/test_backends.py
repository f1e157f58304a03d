"""Backends: any `(GraphModule, example_inputs) -> callable`, its inputs, and when it is called."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._higher_order_ops.scan import scan

import aotlens
from aotlens.errors import BackendError
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.engine.configurations import direct
from tests.engine.judging import judge
from tests.programs import PROGRAMS


class Recording:
    """Runs each graph as it is and remembers what it was given."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
        assert len(names) == len(inputs)
        self.graphs.append(graph)
        return graph


def mixed(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).tanh().sum()


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(shape, generator=generator).requires_grad_()
    return make(3, 4), make(4, 5)


def test_custom_backend_gets_both_graphs_and_the_backward_only_when_it_runs() -> None:
    backend = Recording()
    x, w = inputs()
    compiled = compile_direct(mixed, (x, w), {}, CompileOptions(backend=backend))
    result = compiled.call(x, w)
    assert len(backend.graphs) == 1
    result.backward()
    assert len(backend.graphs) == 2
    grads = torch.autograd.grad(mixed(x, w), (x, w))
    torch.testing.assert_close((x.grad, w.grad), grads)


def test_graph_modules_carry_what_backends_rely_on() -> None:
    backend = Recording()
    x, w = inputs()
    compile_direct(mixed, (x, w), {}, CompileOptions(backend=backend)).call(x, w).backward()
    forward, backward = backend.graphs
    assert [node.name for node in forward.graph.find_nodes(op="placeholder")] == ["primals_1", "primals_2"]
    assert [node.name for node in backward.graph.find_nodes(op="placeholder")][-1] == "tangents_1"
    for graph in backend.graphs:
        for node in graph.graph.nodes:
            if node.op == "call_function":
                assert isinstance(node.meta["val"], Tensor)
                assert "test_backends.py" in node.meta["stack_trace"]


def test_boxed_callables_get_one_list() -> None:
    def backend(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        def call(args: list[Any]) -> Any:
            taken = list(args)
            args.clear()
            return graph(*taken)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    x, w = inputs()
    compiled = compile_direct(mixed, (x, w), {}, CompileOptions(backend=backend))
    torch.testing.assert_close(compiled.call(x, w), mixed(x, w))


def test_inference_inputs_have_the_conventional_names() -> None:
    backend = Recording()
    with torch.no_grad():
        compile_direct(mixed, inputs(), {}, CompileOptions(backend=backend))
    (graph,) = backend.graphs
    assert [node.name for node in graph.graph.find_nodes(op="placeholder")] == ["arg0_1", "arg1_1"]


def test_eager_calls_the_kernel_that_eager_calls() -> None:
    """One with a composition and a kernel of its own is not taken apart: the last bits are those of eager."""
    x = torch.randn(7, 33, generator=torch.Generator().manual_seed(0)).requires_grad_()
    function = lambda x: torch.nn.functional.silu(x).sin()
    compiled = compile_direct(function, (x,), {}, CompileOptions(backend="eager"))
    function(x).sum().backward()
    expected, x.grad = x.grad, None
    compiled.call(x).sum().backward()
    assert expected is not None
    assert x.grad is not None
    assert torch.equal(x.grad, expected)
    assert "aten.silu_backward" in compiled.source


def test_unknown_backend_is_refused_with_the_list_of_known_ones() -> None:
    with pytest.raises(BackendError, match="no backend `nvfuser`; choose one of inductor, eager"):
        compile_direct(mixed, inputs(), {}, CompileOptions(backend="nvfuser"))


def test_unknown_policy_is_refused_with_the_list_of_known_ones() -> None:
    with pytest.raises(
        Exception, match=r"no partition policy .all.; a policy is one or more of: min-cut, default"
    ):
        compile_direct(mixed, inputs(), {}, CompileOptions(backend="eager", policy="all"))


@pytest.mark.rotates
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_inductor_draws_masks_in_eagers_order_where_it_is_asked_to(layout: torch.memory_format) -> None:
    def combined(x: Tensor) -> Tensor:
        masked = [scale * torch.nn.functional.dropout(x, 0.5) for scale in range(12)]
        return sum(masked, torch.nn.functional.dropout1d(x[0, 0], 0.5).sum())

    x = torch.randn(2, 3, 4, 5).to(memory_format=layout).requires_grad_()
    options = CompileOptions(inductor_config=(("fallback_random", True),))
    torch.manual_seed(0)
    found = compile_direct(combined, (x,), {}, options).call(x)
    torch.manual_seed(0)
    torch.testing.assert_close(found, combined(x))


@pytest.mark.rotates
def test_inductor_writes_over_nothing_that_the_caller_of_a_marked_region_reads_on() -> None:
    @torch.compiler.nested_compile_region
    def masked(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5) * x

    def combined(x: Tensor) -> Tensor:
        return masked(x) + masked(x.sin())

    x = torch.randn(3, 4).requires_grad_()
    options = CompileOptions(inductor_config=(("fallback_random", True),))
    gradients = []
    for fn in (combined, torch.compile(combined, backend=dynamo_backend(options))):
        torch.manual_seed(0)
        gradients.append(torch.autograd.grad(fn(x).sum(), x))
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.rotates
def test_inductor_draws_inside_the_functions_of_higher_order_operators() -> None:
    def chosen(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.rand_like, torch.zeros_like, (x,))

    found = compile_direct(chosen, (torch.ones(8),), {}, CompileOptions()).call(torch.ones(8))
    assert found.unique().numel() == 8
    assert 0 <= found.min() <= found.max() < 1


@pytest.mark.rotates
def test_inductor_counts_the_steps_of_a_loop_behind_dynamo() -> None:
    def summed(x: Tensor) -> Tensor:
        step = lambda total, row: (total + row.sin(), total * row)
        total, rows = scan(step, torch.zeros_like(x[0]), x)
        return total * rows

    x = torch.randn(3, 4).requires_grad_()
    compiled = torch.compile(summed, backend=dynamo_backend(CompileOptions()))
    found = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(summed(x).sum(), x))


def test_what_inductor_cannot_follow_is_refused_at_its_line() -> None:
    def read(x: Tensor) -> Tensor:
        state = torch.get_rng_state()
        drawn = torch.rand_like(x)
        torch.set_rng_state(state)
        return x * drawn

    with pytest.raises(BackendError) as raised:
        compile_direct(read, (torch.ones(8),), {}, CompileOptions())
    line = read.__code__.co_firstlineno + 1
    assert raised.value.span is not None
    assert raised.value.span.line == line
    assert f"test_backends.py:{line}:17: `torch.get_rng_state()`; call it outside of" in str(raised.value)


@pytest.mark.rotates
def test_inductor_finds_a_backward_again_whose_size_is_half_of_a_symbol() -> None:
    """Inductor's cache of graphs asks for the symbol, which is none of the backward's inputs."""
    (program,) = (one for one in PROGRAMS if one.name == "view_writes/hsplit_of_non_leaf")
    for _ in range(2):
        judge(program, direct(CompileOptions(dynamic=True)), grow=True)


@pytest.mark.rotates
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("index", [4, -5])
def test_an_index_in_a_tensor_is_checked(backend: str, index: int) -> None:
    """A generated kernel reads what is there; eager raises an IndexError."""
    x = torch.arange(12.0).view(4, 3)
    call = aotlens.compile(lambda x, at: x[at] * 2, options=CompileOptions(backend=backend))
    assert torch.equal(call(x, torch.tensor(-4)), x[0] * 2)
    with pytest.raises((IndexError, RuntimeError), match=r"out of range|u0"):
        call(x, torch.tensor(index))
