"""Integers among the arguments under `dynamic=True`: one compilation serves many of them."""

import math
import numbers
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional

import aotlens
from aotlens.pipeline import compile_direct
from aotlens.torch_api.operators import pytree
from tests.programs.program import leaf

Step = Callable[[Tensor, int], Any]
NAMES = {6: "sin", 5: "cos"}
LAYERS = [torch.sin, torch.cos, torch.exp, torch.tanh, torch.abs, torch.neg, torch.sigmoid]

SERVED: dict[str, Step] = {
    "slice": lambda x, n: x[:n].sin(),
    "row": lambda x, n: x[n] * x[-n],
    "column": lambda x, n: x.t()[:, n].exp(),
    "narrow": lambda x, n: x.narrow(0, 1, n),
    "factor": lambda x, n: x * n + n,
    "divisor": lambda x, n: x / (n / 2),
    "sizes of new tensors": lambda x, n: x.new_ones(n, 4) + torch.arange(n).unsqueeze(1),
    "result": lambda x, n: (x * 2, n, n + 1),
    "positions": lambda x, n: functional.pad(x, (0, n)).roll(n, 0).tril(n),
    "repeated": lambda x, n: x.repeat(n, 1).sum(0),
    "kernel": lambda x, n: functional.interpolate(x.view(1, 1, 20, 4), size=n),
    "branch": lambda x, n: x.sin() if n > 2 else x.cos(),
    "asked for its type": lambda x, n: x[:n] if isinstance(n, int) else x[:n].nonzero(),
    "asked for an abstract type": lambda x, n: x[:n] if isinstance(n, numbers.Integral) else x[n],
    "tensor of it": lambda x, n: x.index_select(0, torch.tensor([n, n - 1])) * torch.tensor(n / 2),
    "container": lambda x, n: {"rows": x[:n], "n": n},
}
BUILT_IN: dict[str, Step] = {
    "key": lambda x, n: getattr(x, NAMES.get(n, "tan"))(),
    "item": lambda x, n: LAYERS[n](x),
    "name": lambda x, n: getattr(torch, f"log1{'p' if f'{n}' == '6' else '0'}")(x.abs() + 1),
    "text": lambda x, n: x * int(f"{n:03}") + len(str(n)),
    "loop": lambda x, n: sum((x * at for at in range(n)), x),
    "float": lambda x, n: x * math.sqrt(n),
    "dimension": lambda x, n: x.sum(n - 5),
}


def counted(step: Step) -> tuple[Step, list[Any]]:
    graphs: list[Any] = []

    def compiler(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return aotlens.make_boxed_func(module)

    bare = aotlens.make_boxed_func
    return aotlens.aot_function(step, compiler, lambda module, inputs: bare(module), dynamic=True), graphs


def compare_at(step: Step, call: Step, number: Any) -> None:
    results = []
    for function in (step, call):
        torch.manual_seed(0)
        x = leaf(20, 4)
        found = function(x, number)
        tensors = [one for one in pytree.tree_leaves(found) if isinstance(one, Tensor)]
        loss = sum((one * one.detach().cos()).sum() for one in tensors if one.requires_grad)
        gradient = torch.autograd.grad(loss, x)[0] if isinstance(loss, Tensor) else None
        results.append((found, gradient))
    expected, compiled = results
    torch.testing.assert_close(compiled, expected)


@pytest.mark.rotates
@pytest.mark.parametrize("name", SERVED)
def test_one_compilation_serves_many_numbers(name: str) -> None:
    call, graphs = counted(SERVED[name])
    for number in (6, 5, 9, 3, 6):
        compare_at(SERVED[name], call, number)
    assert len(graphs) == 1


@pytest.mark.rotates
@pytest.mark.parametrize("name", BUILT_IN)
def test_what_no_symbol_tells_is_built_in(name: str) -> None:
    call, graphs = counted(BUILT_IN[name])
    for number in (6, 5, 6):
        compare_at(BUILT_IN[name], call, number)
    assert len(graphs) == 2


NUMBERS = (0, 1, -2, True, 2.5, 19)
NO_SUCH_CALLS = (("divisor", 0), ("asked for its type", 2.5))
"""In eager they raise."""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pair
        for pair in product(("factor", "branch", "divisor", "asked for its type"), NUMBERS)
        if pair not in NO_SUCH_CALLS
    ],
)
def test_other_numbers_afterwards(name: str, number: Any) -> None:
    call, _ = counted(SERVED[name])
    for given in (6, number, 5):
        compare_at(SERVED[name], call, given)


def test_a_number_that_does_not_fit_is_refused_by_the_compilation() -> None:
    options = aotlens.CompileOptions(backend="eager", dynamic=True)
    compiled = compile_direct(SERVED["slice"], (leaf(20, 4), 6), {}, options)
    with pytest.raises(ValueError, match=r"`n` must be an integer, got 6\.0"):
        compiled.call(leaf(20, 4), 6.0)
    with pytest.raises(ValueError, match="sizes must satisfy"):
        compiled.call(leaf(20, 4), 21)
    (given,) = (row for row in compiled.target().inputs if row.name == "n")
    assert given.kind == "SymInt"


@pytest.mark.rotates
def test_inductor_serves_many_numbers() -> None:
    options = aotlens.CompileOptions(dynamic=True)
    for name in ("slice", "row", "factor", "result"):
        compiled = compile_direct(SERVED[name], (leaf(20, 4), 6), {}, options)
        for number in (6, 4, 9):
            compare_at(SERVED[name], compiled.call, number)


@pytest.mark.rotates
def test_a_number_in_brackets_within_a_loop() -> None:
    """Torch takes function modes off while a higher-order operator runs its functions."""
    options = aotlens.CompileOptions(backend="eager", dynamic=True)
    loop = lambda x, n: while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + x[i] * x[n]), (0, x.abs()))[1]
    with torch.inference_mode():
        call = compile_direct(loop, (torch.randn(9), 3), {}, options).call
        for number in (3, 5):
            x = torch.randn(9)
            torch.testing.assert_close(call(x, number), loop(x, number))


@pytest.mark.rotates
def test_a_backward_that_gets_a_number_made_of_a_changing_one() -> None:
    """Inductor's code named the symbol, which no input of the backward had alone."""

    def loss(x: torch.Tensor, count: int) -> torch.Tensor:
        return (x.sigmoid() / max(2, count - 1)).sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="aotlens", options={"backend": "inductor", "strict": True})
    for count in (3, 5, 6):
        gradients = []
        for function in (compiled, loss):
            x = torch.linspace(-1, 1, 4).requires_grad_()
            function(x, count).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)
