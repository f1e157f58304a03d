"""State that a call leaves where no name leads to it, or that its backward leaves."""

import itertools
import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.errors import UnsupportedError
from tests.calls.test_side_effects import EAGER


def test_what_a_function_leaves_in_itself() -> None:
    def fn(x: Tensor) -> Tensor:
        fn.last = x * 2  # type: ignore[attr-defined]
        return x + 1

    def counting(x: Tensor) -> Tensor:
        counting.calls = getattr(counting, "calls", 0) + 1  # type: ignore[attr-defined]
        return x * counting.calls  # type: ignore[attr-defined]

    compiled = aotlens.compile(fn, options=EAGER)
    for at in range(3):
        compiled(torch.full((3,), at))
        torch.testing.assert_close(fn.last, torch.full((3,), at) * 2)  # type: ignore[attr-defined]
    compiled = aotlens.compile(counting, options=EAGER)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3))
    with pytest.raises(UnsupportedError, match="changes the attribute `calls`"):
        compiled(torch.ones(3))


numbers: Any = np.random.RandomState(0)


new_numbers: Any = np.random.default_rng(0)


own: Any = random.Random(0)


counted: Any = itertools.count()


paired: Any = zip([1, 2], map(float, [3, 4]), strict=True)


teed: Any = itertools.tee([1, 2, 3])[0]


yielded: Any = (2 * one for one in [1, 2, 3])


context: Any = ContextVar("context", default=1)


HIDDEN: dict[str, tuple[Callable[[], Any], str]] = {
    "python": (random.random, "uses random numbers from `random`"),
    "own": (own.random, "uses random numbers from `Random`"),
    "numpy": (lambda: float(np.random.rand()), r"uses random numbers from `numpy\.random`"),
    "numpy's state": (lambda: float(numbers.rand()), "uses random numbers from `numbers`"),
    "numpy's generator": (lambda: float(new_numbers.random()), "uses random numbers from `new_numbers`"),
    "count": (lambda: next(counted), "takes items from the iterator `counted`"),
    "copied": (lambda: next(teed), "takes items from the iterator `teed`"),
    "pairs": (lambda: next(paired)[1], "takes items from the iterator `paired`"),
    "generator": (lambda: next(yielded), "takes items from the iterator `yielded`"),
    "context": (lambda: context.set(context.get() + 1) and 1, "changes the context variable `context`"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_state_that_no_name_leads_to_is_refused_where_a_call_moves_it(name: str) -> None:
    draw, message = HIDDEN[name]
    with pytest.raises(UnsupportedError, match=message):
        aotlens.compile(lambda x: x * draw(), options=EAGER)(torch.ones(3))


def test_random_numbers_of_python_are_set_back_where_they_are_refused() -> None:
    state: Any = np.random.get_state
    before, numpys = random.getstate(), state()[2]
    for draw in (random.random, np.random.rand):
        with pytest.raises(UnsupportedError, match="uses random numbers from"):
            aotlens.compile(lambda x, draw=draw: x * float(draw()), options=EAGER)(torch.ones(3))
    assert (random.getstate(), state()[2]) == (before, numpys)


def test_an_iterator_that_is_only_held_is_no_matter() -> None:
    held = iter([1, 2])
    compiled = aotlens.compile(lambda x: x * (2 if held else 3), options=EAGER)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert next(held) == 1


class Logged(torch.autograd.Function):
    log: ClassVar[list[Tensor]] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        Logged.log.append(gradients[0])
        return gradients[0] * 2


def test_what_the_backward_leaves_is_undone_and_refused() -> None:
    kept: list[Tensor] = []

    def hooked(x: Tensor) -> Tensor:
        hidden = x * 2
        hidden.register_hook(kept.append)
        return hidden.sin()

    def custom(x: Tensor) -> Tensor:
        return Logged.apply(x)

    for fn, said in ((hooked, "the list `kept`"), (custom, "the list `log`")):
        with pytest.raises(UnsupportedError, match=f"a hook or a custom backward that changes {said}"):
            aotlens.compile(fn, options=EAGER)(torch.ones(3, requires_grad=True))
    assert kept == []
    assert Logged.log == []
