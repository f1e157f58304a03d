"""Changes that a call makes outside: in a callee they are undone, and refused by name."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.errors import UnsupportedError
from tests.calls.test_direct_guards import EAGER, Config
from tests.programs.program import leaf, plain

FACTOR = 2.0
STATE = SimpleNamespace(count=0)
LOG: list[int] = []


def counting(x: Tensor) -> Tensor:
    STATE.count += 1
    return x + 1


def logging(x: Tensor) -> Tensor:
    LOG.append(1)
    return x + len(LOG)


def set_global(x: Tensor) -> Tensor:
    global FACTOR  # noqa: PLW0603 (a change of a global is the case)
    FACTOR = 9.0
    return x * FACTOR


@pytest.mark.parametrize(
    ("inner", "named"),
    [
        (logging, "the list `LOG`"),
        (counting, "the attribute `count`"),
        (set_global, "the global `FACTOR`"),
    ],
)
def test_a_change_in_a_callee_is_undone_and_refused(inner: Callable[..., Any], named: str) -> None:
    def outer(x: Tensor) -> Tensor:
        return inner(x) * 2

    with pytest.raises(UnsupportedError, match=named):
        aotlens.compile(outer, options=EAGER)(plain(3))
    assert (LOG, STATE.count) == ([], 0)
    assert FACTOR == 2.0


def test_what_only_a_first_call_changes_is_no_change_after_it() -> None:
    tables: dict[int, Tensor] = {}

    def shifted(x: Tensor) -> Tensor:
        if x.shape[0] not in tables:
            tables[x.shape[0]] = torch.arange(x.shape[0])
        return x + tables[x.shape[0]]

    x = plain(3)
    compiled: Any = aotlens.compile(shifted, options=EAGER)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x + torch.arange(3))
    assert list(tables) == [3]


def test_a_number_that_a_callee_keeps_and_reads_is_undone_and_refused() -> None:
    config = Config()

    def remember(x: Tensor) -> Tensor:
        config.scale += 1
        return x

    with pytest.raises(UnsupportedError, match="the attribute `scale`"):
        aotlens.compile(lambda x: remember(x) * 2, options=EAGER)(plain(3))
    assert config.scale == 1.5


def test_a_closure_variable_of_a_callee_is_undone_and_refused() -> None:
    count = 0

    def tick(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return x

    with pytest.raises(UnsupportedError, match="the closure variable `count`"):
        aotlens.compile(lambda x: tick(x) * 2, options=EAGER)(plain(3))
    assert count == 0


def test_other_arguments_compile_anew() -> None:
    def double(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y

    compiled: Any = aotlens.compile(double, options=EAGER)
    shared = plain(4)
    pairs = [
        (plain(4), plain(4)),
        (plain(5), plain(5)),
        (plain(4).double(), plain(4)),
        (leaf(4), plain(4)),
        (shared, shared),
        (shared, shared.view(4)),
        (shared, shared.view(2, 2).t().reshape(4)),
    ]
    for x, y in pairs:
        torch.testing.assert_close(compiled(x, y), double(x, y))
    with torch.no_grad():
        assert not compiled(leaf(4), plain(4)).requires_grad
