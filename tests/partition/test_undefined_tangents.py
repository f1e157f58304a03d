"""The backward of some results, where zeros for the rest would not do: what is compiled for it, and when."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.testing._internal.two_tensor import TwoTensor

import aotlens
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.programs.program import leaf

pytestmark = pytest.mark.filterwarnings("ignore")  # Dynamo warns of its own deprecations


def loss_and_another(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x * y).sum(), x.sqrt()


def loss_and_what_it_is_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * y
    return hidden.sum(), hidden


def operators(graphs: list[fx.GraphModule]) -> list[int]:
    return [
        len(graph.graph.find_nodes(op="call_function", target=torch.ops.aten.div.Tensor)) for graph in graphs
    ]


def test_only_the_backward_that_is_asked_for_is_compiled() -> None:
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph

    x, y = leaf(3, 4), leaf(3, 4)
    compiled = compile_direct(loss_and_another, (x, y), {}, CompileOptions(backend=backend))
    for _ in range(2):
        compiled.call(x, y)[0].backward()
    assert operators(graphs) == [0, 0]
    for _ in range(2):
        loss, other = compiled.call(x, y)
        (loss + other.sum()).backward()
    assert operators(graphs) == [0, 0, 1]


def test_where_zeros_do_nothing_is_chosen() -> None:
    x, y = leaf(3, 4), leaf(3, 4)
    chosen = {}
    for fn in (loss_and_what_it_is_of, loss_and_another):
        steps = compile_direct(fn, (x, y), {}, CompileOptions(backend="eager")).module.text.steps
        chosen[fn] = [step for step in steps if step.name == "choose the backward graph"]
    assert chosen[loss_and_what_it_is_of] == []
    (step,) = chosen[loss_and_another]
    assert (
        "zeros for an undefined tangent of `out[1]` would be multiplied by a value that may be infinite"
        in step.reason
    )
    assert [site.span.line for site in step.sites] == [21, 21]


def test_an_exported_module_tells_of_what_zeros_make() -> None:
    x, y = leaf(3, 4), leaf(3, 4)
    space: dict[str, Any] = {}
    exec(aotlens.export(loss_and_another, x, y, options=CompileOptions(backend="eager")), space)
    positive = x.detach().exp().requires_grad_()
    (found,) = torch.autograd.grad(space["call"](positive, y)[0], [positive])
    assert torch.equal(found, y)
    with pytest.raises(RuntimeError, match="was run with undefined tangents: zeros for them give nan"):
        torch.autograd.grad(space["call"](x, y)[0], [x])


def test_a_result_from_disk_has_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path))
    x, y = leaf(3, 4), leaf(3, 4)
    for _ in range(2):
        torch.compiler.reset()
        backend = dynamo_backend(CompileOptions(backend="eager", cache=True))
        loss, _ = torch.compile(loss_and_another, backend=backend)(x, y)
        (found,) = torch.autograd.grad(loss, [x])
        assert torch.equal(found, y)


def root_beside_an_output_that_fails(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden = x.sigmoid()
    failing = hidden * 1.0
    hidden.mul_(2)
    return failing, y.log(), (y * y).sqrt()


@pytest.mark.parametrize("wanted", [1, 2])
def test_tangents_are_counted_from_the_first_output_also_if_its_backward_fails(wanted: int) -> None:
    x, y = torch.tensor([0.0, 1.0], requires_grad=True), torch.tensor([0.0, 4.0])
    wrapper = TwoTensor(y, y + 5 * y.sign()).requires_grad_()
    compiled = aotlens.compile(root_beside_an_output_that_fails, options=CompileOptions(backend="eager"))
    gradients: list[Any] = []
    for fn in (root_beside_an_output_that_fails, compiled):
        output = fn(x, wrapper)[wanted]
        gradients += torch.autograd.grad([output], [wrapper], [torch.ones_like(output)])
    expected, actual = ((gradient.a, gradient.b) for gradient in gradients)
    torch.testing.assert_close(actual, expected, equal_nan=True)
