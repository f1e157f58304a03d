"""The backward of some results, where zeros for the rest would not do: what is compiled for it, and when."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx

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
    assert [site.span.line for site in step.sites] == [20, 20]


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
