"""Results without a gradient on one memory: a caller's write through one is told to autograd as in eager."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.options import CompileOptions
from tests.programs.python.functions import ViewReturned

Function = Callable[[Tensor], tuple[Tensor, ...]]


def itself_and_view(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return made, made.view(-1)


def view_before_itself(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return made[0], made


def views_of_what_stays_inside(x: Tensor) -> tuple[Tensor, ...]:
    made = (x * 2).view(-1)
    return made[1:], made, made[:2]


def several_views(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return made, *made.chunk(2)


def several_of_what_stays_inside(x: Tensor) -> tuple[Tensor, ...]:
    return (x * 2).chunk(2)


def several_and_a_row(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return (*made.unbind(0), made[0])


def rows_of_one_of_several(x: Tensor) -> tuple[Tensor, ...]:
    first, second = (x * 2).chunk(2)
    return first[0], first.view(-1), second


def one_of_several_and_its_row(x: Tensor) -> tuple[Tensor, ...]:
    first = (x * 2).chunk(2)[0]
    return first, first[0]


def several_detached(x: Tensor) -> tuple[Tensor, ...]:
    first, second = (x * 2).chunk(2)
    return first.detach(), second.detach()


def parts_of_what_stays_inside(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return made[:1], made[:, 1], made[1:]


def written_view(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    view = made.view(-1)
    view.add_(1)
    return view, made


def detached(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return made.detach(), made.data, made, made.view(-1)


def views_of_a_detached_one(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    apart = made.detach()
    return apart.view(-1), apart, made, made.view(-1)


def aliases(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return made, made.view_as(made), made[:]


def beside_a_gradient(x: Tensor) -> tuple[Tensor, ...]:
    made = x.detach() * 2
    return made, made.t(), x * 3


def viewed_without_grad(x: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        made = x * 2
        flat = made.view(-1)
    return made, flat, made.t(), flat[1:]


def input_viewed_without_grad(x: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        view = x.view(-1)
    return view, x, x.t()


def input_viewed_under_inference_mode(x: Tensor) -> tuple[Tensor, ...]:
    with torch.inference_mode():
        view = x.view(-1)
    return view, x


def viewed_in_a_custom_function(x: Tensor) -> tuple[Tensor, ...]:
    made = x * 2
    return ViewReturned.apply(made), made


FUNCTIONS: list[Function] = [
    itself_and_view,
    view_before_itself,
    views_of_what_stays_inside,
    several_views,
    several_of_what_stays_inside,
    several_and_a_row,
    rows_of_one_of_several,
    one_of_several_and_its_row,
    several_detached,
    parts_of_what_stays_inside,
    written_view,
    detached,
    views_of_a_detached_one,
    aliases,
    viewed_without_grad,
    input_viewed_without_grad,
    input_viewed_under_inference_mode,
    viewed_in_a_custom_function,
    beside_a_gradient,
]


def after_a_write(fn: Function, at: int, *, grad: bool) -> list[Any]:
    """What a caller sees who writes a value that requires grad through one result."""
    results = fn(torch.arange(4.0).view(2, 2).requires_grad_(grad))
    before = [one._version for one in results]
    weight = torch.full_like(results[at], 3.0, requires_grad=True)
    try:
        written = results[at].mul_(weight)
        assert written is results[at]
        torch.stack([(one**2).sum() for one in results]).sum().backward()
    except RuntimeError as error:  # one of several views, or beside one
        return [str(error), *(one.detach().tolist() for one in results)]
    facts = [(one.requires_grad, one._version - then) for one, then in zip(results, before, strict=True)]
    assert weight.grad is not None
    return [facts, [one.tolist() for one in results], weight.grad.tolist()]


CASES = [(fn, "eager") for fn in FUNCTIONS] + [(itself_and_view, "inductor")]


@pytest.mark.rotates
@pytest.mark.parametrize(("fn", "backend"), CASES)
def test_a_write_is_told_to_autograd(fn: Function, backend: Any) -> None:
    call: Any = aotlens.compile(fn, options=CompileOptions(backend=backend))
    grad = fn is beside_a_gradient
    count = 2 if fn is beside_a_gradient else len(fn(torch.ones(2, 2)))
    for at in range(count):
        assert after_a_write(call, at, grad=grad) == after_a_write(fn, at, grad=grad)


def test_a_saved_result_that_is_changed_is_found() -> None:
    call = aotlens.compile(itself_and_view, options=CompileOptions(backend="eager"))
    made, view = call(torch.ones(2, 2))
    weight = torch.ones(2, 2, requires_grad=True)
    product = (made * weight).sum()
    view.mul_(5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_view_beside_a_write_that_does_not_count_for_it_may_be_used() -> None:
    def written(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            view = x.t()
        y.mul_(2)
        return view

    x = torch.ones(2, 2, requires_grad=True)
    view = aotlens.compile(written, options=CompileOptions(backend="eager"))(x, x.data)
    assert view.is_leaf
    with pytest.raises(RuntimeError, match="view was created in no_grad mode"):
        _ = aotlens.compile(written, options=CompileOptions(backend="eager"))(x, x.detach()).grad_fn
