"""Compilers as vendors write them: what they find around them, when they are called, and their names."""

from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch import config
from torch._guards import TracingContext

import aotlens

VIEW = torch.ops.aten.view.default


def trained(module: nn.Module, backend: Any, **options: Any) -> list[Any]:
    """The gradients that a compiled module gets, which are eager's."""
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    module(x).pow(2).sum().backward()
    expected = [p.grad for p in module.parameters()]
    module.zero_grad()
    torch._dynamo.reset()
    torch.compile(module, backend=backend, **options)(x).pow(2).sum().backward()
    found = [p.grad for p in module.parameters()]
    torch.testing.assert_close(found, expected)
    return found


def test_nodes_have_the_names_that_torch_gives() -> None:
    seen: list[Any] = []

    def fn(x: Any) -> Any:
        with torch.no_grad():
            x.view(-1).mul_(2)
        return x.softmax(0)

    def keep(module: Any, inputs: Any) -> Any:
        seen.extend(node.name for node in module.graph.nodes)
        return module

    aotlens.aot_function(fn, keep, keep_inference_input_mutations=True)(torch.ones(2, 2))
    assert seen == ["arg0_1", "view", "mul", "reshape", "_softmax", "copy_", "output"]


class Traced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        hidden = self.linear(x)
        return (hidden.relu().sum(),)


@pytest.mark.parametrize("simplified", [False, True])
def test_a_graph_module_keeps_the_places_of_its_nodes(simplified: bool) -> None:
    tracer = torch.fx.Tracer()
    tracer.record_stack_traces = True
    root = Traced()
    module = torch.fx.GraphModule(root, tracer.trace(root))
    module.train()
    traces: list[str | None] = []

    def keep(graph: Any, inputs: Any) -> Any:
        traces.extend(node.stack_trace for node in graph.graph.nodes if node.op == "call_function")
        return graph

    x = torch.randn(2, 3, requires_grad=True)
    compiled: Any = aotlens.aot_function(module, keep)
    if simplified:
        compiled = aotlens.aot_module_simplified(module, (x,), keep)
    (result,) = compiled(x)
    torch.testing.assert_close(result, root(x)[0])
    result.backward()
    assert len(traces) > 5
    assert all(trace is not None and "test_functorch_compilers.py" in trace for trace in traces)


def test_a_reshape_that_copies_nothing_is_a_view() -> None:
    targets: list[Any] = []

    def fn(x: Any) -> Any:
        y = x * 2
        y.view(-1).add_(1)
        return y.sin()

    def keep(module: Any, inputs: Any) -> Any:
        targets.extend(node.target for node in module.graph.find_nodes(op="call_function", target=VIEW))
        assert not module.graph.find_nodes(op="call_function", target=torch.ops.aten.reshape.default)
        return module

    assert aotlens.aot_function(fn, keep)(torch.ones(2, 2)).shape == (2, 2)
    assert len(targets) == 2


@pytest.mark.parametrize("at_once", [False, True])
def test_the_backward_is_compiled_at_the_first_backward_unless_asked(at_once: bool) -> None:
    names: list[str] = []

    def note(module: Any, inputs: Any) -> Any:
        (graph,), model, _ = aotlens.get_aot_compilation_context()
        assert aotlens.get_aot_graph_name().startswith(f"{model}__{graph}_")
        names.append(graph.partition("_")[2])
        return module

    with config.patch(force_non_lazy_backward_lowering=at_once):
        result = aotlens.aot_function(torch.sin, note)(torch.ones(2, requires_grad=True))
    assert names == ["forward", "backward"][: 1 + at_once]
    result.sum().backward()
    assert names == ["forward", "backward"]
    aotlens.aot_function(torch.sin, note)(torch.ones(2))
    assert names[2:] == ["inference"]
    assert aotlens.get_aot_compilation_context()[0] == []


def test_a_backend_out_of_compilers_finds_what_torch_leaves_for_it() -> None:
    found: list[Any] = []

    class Counts(nn.Module):
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> Any:
            self.calls.add_(1)
            return self.linear(x)

    def compiler(module: Any, inputs: Any) -> Any:
        context: Any = TracingContext.get()
        metadata = context.fw_metadata
        assert metadata is not None
        found.append((metadata.static_input_indices, metadata.num_outputs, metadata.is_train))
        assert context.params_flat == []
        return module

    table = lambda: {torch.ops.aten.t.default: lambda x: x.transpose(0, 1)}
    module = Counts()
    trained(module, aotlens.aot_autograd(fw_compiler=compiler, decompositions=table))
    assert module.calls.item() == 2
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0][1:] == (1, True)
    assert len(found[0][0]) == 3


def test_strides_that_the_forward_reports_are_those_that_the_backward_is_given() -> None:
    strides: list[Any] = []

    def forward(module: Any, inputs: Any) -> Any:
        reported = TracingContext.get().output_strides
        assert reported == []
        outputs = module.graph.output_node().args[0]
        reported.extend(None if node is None else (1, 4) for node in outputs)

        def run(*args: Any) -> Any:
            return tuple(out.t().contiguous().t() for out in module(*args))

        return run

    def backward(module: Any, inputs: Any) -> Any:
        strides.extend(given.stride() for given in inputs[:-1])
        return module

    backend = aotlens.aot_autograd(fw_compiler=forward, bw_compiler=backward)
    x = torch.randn(4, 3, requires_grad=True)
    torch._dynamo.reset()
    torch.compile(lambda x: (x * 2).sin(), backend=backend)(x).sum().backward()
    assert strides == [(1, 4)]
    torch.testing.assert_close(x.grad, 2 * torch.cos(2 * x.detach()))


def test_a_backend_that_calls_aot_module_simplified_serves_symbolic_sizes() -> None:
    graphs: list[Any] = []

    def compiler(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return aotlens.make_boxed_func(module.forward)

    def backend(module: Any, inputs: Any) -> Any:
        return aotlens.aot_module_simplified(module, inputs, fw_compiler=compiler)

    linear = nn.Linear(3, 2)
    trained(linear, backend, dynamic=True)
    compiled = torch.compile(linear, backend=backend, dynamic=True)
    for rows in (5, 6, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), linear(x))
        compiled(x).sum().backward()
    assert len(graphs) == 2


def test_a_backend_refuses_names_that_no_compiler_has() -> None:
    with pytest.raises(TypeError, match="bw_compilr"):
        aotlens.aot_autograd(fw_compiler=aotlens.nop, bw_compilr=aotlens.nop)


def test_graphs_are_drawn(tmp_path: Any) -> None:
    pytest.importorskip("pydot", reason="draws graphs")
    compiler = aotlens.draw_graph_compile(str(tmp_path / "graph.dot"))
    aotlens.aot_function(torch.sin, compiler)(torch.ones(2))
    assert "digraph" in (tmp_path / "graph.dot").read_text()
