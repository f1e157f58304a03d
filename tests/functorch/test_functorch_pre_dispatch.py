"""Export above autograd, higher-order operators and unbacked sizes in exported graphs (J42, J43)."""

from typing import Any

import pytest
import torch
from functorch.experimental.control_flow import map as control_map
from torch._functorch import aot_autograd

import aotlens

aten = torch.ops.aten


class Calls(torch.nn.Module):
    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def operators(module: Any) -> Any:
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def composite(x: Any, weight: Any) -> Any:
    y = torch.nn.functional.conv2d(x, weight).contiguous()
    y.add_(1)
    with torch.no_grad():
        z = y * 2
    return (torch.nn.functional.linear(y.reshape(2, -1), torch.ones(3, 36)).matmul(torch.ones(3, 3)), z)


def nested_cond(x: Any) -> Any:
    def inner(x: Any) -> Any:
        y = x.cos()
        y.add_(5)
        return y.sum()

    def outer(x: Any) -> Any:
        z = x.sin()
        z.mul_(2)
        return torch.cond(z.sum() > 0, inner, lambda z: z.sum(), [z])

    return (torch.cond(x.sum() > 4, outer, inner, [x]) + 3,)


def map_of_cond(x: Any, y: Any) -> Any:
    def body(a: Any, b: Any) -> Any:
        c = a.sin()
        c.add_(b)
        return torch.cond(c.sum() > 0, lambda c: c.cos(), lambda c: c.sin(), [c])

    return (control_map(body, x, y),)


CASES: dict[str, tuple[Any, Any, bool]] = {
    "composite": (composite, lambda: (torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)), True),
    "cond": (nested_cond, lambda: (torch.randn(3, 4),), True),
    "map and cond": (map_of_cond, lambda: (torch.randn(3, 4), torch.randn(4)), True),
    "cond, after dispatch": (nested_cond, lambda: (torch.randn(3, 4),), False),
}


@pytest.mark.rotates
@pytest.mark.parametrize("case", CASES)
def test_graph_has_the_operators_of_torch_and_computes_as_eager(case: Any) -> None:
    fn, make, pre_dispatch = CASES[case]
    torch.manual_seed(0)
    args = make()
    options: dict[str, Any] = {"trace_joint": False, "pre_dispatch": pre_dispatch}
    module, _ = aotlens.aot_export_module(Calls(fn), args, **options)
    other, _ = aot_autograd.aot_export_module(Calls(fn), args, **options)
    assert operators(module) == operators(other)
    torch.testing.assert_close(tuple(module(*args)), fn(*args))


def test_grad_mode_switches_are_nodes() -> None:
    args = (torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3))
    module, _ = aotlens.aot_export_module(Calls(composite), args, trace_joint=False, pre_dispatch=True)
    switches = [node.args for node in module.graph.nodes if "_set_grad_enabled" in str(node.target)]
    assert switches == [(False,), (True,)]


def written_dropout(x: Any) -> Any:
    y = aten.dropout.default(x, 0.1, False)
    y.add_(5)
    return (y,)


@pytest.mark.parametrize("module", [aotlens, aot_autograd])
def test_write_to_what_may_be_an_argument_is_refused_before_dispatch(module: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot mutate tensors with frozen storage"):
        module.aot_export_module(
            Calls(written_dropout), (torch.ones(2),), trace_joint=False, pre_dispatch=True
        )


def test_write_to_what_may_be_an_argument_is_fine_after_dispatch() -> None:
    module, _ = aotlens.aot_export_module(Calls(written_dropout), (torch.ones(2),), trace_joint=False)
    assert module(torch.ones(2))[0].tolist() == [6, 6]


def test_unbacked_size() -> None:
    def fn() -> Any:
        size: Any = torch.full((), 11).item()
        torch._check(size >= 0)
        return (torch.full((size,), 1.0),)

    module, _ = aotlens.aot_export_module(Calls(fn), (), trace_joint=False, dynamic_shapes=True)
    assert module()[0].shape == (11,)
