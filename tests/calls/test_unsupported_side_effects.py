"""Side effects that are refused: containers, objects that are left, and what is attached to inputs."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.pipeline import compile_direct
from aotlens.verify.locate.stages import compare_stages, replay_stages
from tests.calls.test_side_effects import EAGER, Box


def test_a_number_that_is_counted_is_refused_at_the_second_call() -> None:
    box = Box()

    def step(x: Tensor) -> Tensor:
        box.last = 1 if box.last is None else box.last + 1
        return x * box.last

    compiled = aotlens.compile(step, options=EAGER)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3))
    with pytest.raises(UnsupportedError, match="changes the attribute `last`"):
        compiled(torch.ones(3))
    assert box.last == 1


@pytest.mark.parametrize(
    "change", [list.append, lambda kept, x: kept.insert(0, x), lambda kept, _: kept.clear()]
)
def test_a_list_of_another_length_is_refused_and_as_before(change: Callable[[list[Any], Any], None]) -> None:
    kept, first = list[Any](), torch.zeros(3)
    kept.append(first)

    def step(x: Tensor) -> Tensor:
        change(kept, x * 2)
        return x * 2

    with pytest.raises(UnsupportedError, match="changes the list `kept`"):
        aotlens.compile(step, options=EAGER)(torch.ones(3))
    assert len(kept) == 1
    assert kept[0] is first


def test_an_item_of_an_argument_that_is_removed_is_refused() -> None:
    def step(batch: dict[str, Tensor]) -> Tensor:
        return batch.pop("x") * 2

    with pytest.raises(UnsupportedError, match="changes the dict `batch`"):
        aotlens.compile(step, options=EAGER)({"x": torch.ones(3)})


class Private:
    def __init__(self, value: Tensor) -> None:
        self.value = value


def test_an_object_that_is_left_is_refused() -> None:
    kept: dict[str, Private] = {}

    def step(x: Tensor) -> Tensor:
        kept["x"] = Private(x * 2)
        return x

    with pytest.raises(UnsupportedError, match="an object of type `Private` that the function stores in"):
        aotlens.compile(step, options=EAGER)(torch.ones(3))
    assert kept == {}


class WithSlots:
    __slots__ = ("last", "more")

    def __init__(self) -> None:
        self.last = torch.zeros(3)


class Referred:
    def __init__(self) -> None:
        self.last = torch.zeros(3)


@pytest.mark.parametrize("kind", [WithSlots, Referred])
def test_what_a_call_binds_in_slots_and_behind_weak_references(kind: Any) -> None:
    def made() -> Any:
        kept = kind()
        found: Any = weakref.ref(kept) if kind is Referred else lambda: kept

        def fn(x: Tensor) -> Tensor:
            found().last = x * 2
            return x + found().last

        return fn, kept

    (eager, expected), (fn, found) = made(), made()
    compiled = aotlens.compile(fn, options=EAGER)
    for at in range(3):
        torch.testing.assert_close(compiled(torch.full((3,), at)), eager(torch.full((3,), at)))
        torch.testing.assert_close(found.last, expected.last)
    assert not hasattr(found, "more")


ON_INPUTS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "hook": (lambda x: x.register_hook(print), "a hook that the function registers on its input `x`"),
    "post-accumulate hook": (
        lambda x: x.register_post_accumulate_grad_hook(print),
        "a hook that the function registers on its input `x`",
    ),
    "retain_grad": (lambda x: x.retain_grad(), "`retain_grad` on an input or an output"),
}


@pytest.mark.parametrize("kind", ON_INPUTS)
def test_what_a_function_attaches_to_an_input_is_refused(kind: str) -> None:
    attach, message = ON_INPUTS[kind]

    def step(x: Tensor) -> Tensor:
        attach(x)
        return x.sin()

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedError, match=message):
        aotlens.compile(step, options=EAGER)(x * 3 if kind == "retain_grad" else x)
    assert not x._backward_hooks


def test_an_attribute_of_an_argument_that_is_a_tensor_is_refused() -> None:
    def step(x: Tensor) -> Tensor:
        x.twice = x * 2  # type: ignore[attr-defined]
        return x + 1

    with pytest.raises(UnsupportedError, match="sets the attribute `twice` of its input `x`"):
        aotlens.compile(step, options=EAGER)(torch.ones(3))


def test_replaying_the_stages_leaves_nothing() -> None:
    box, kept = Box(), dict[str, Tensor]()

    def step(x: Tensor) -> Tensor:
        box.last = x * 2
        kept["sin"] = x.sin()
        return x + 1

    x = torch.ones(3, requires_grad=True)
    compiled = compile_direct(step, (x,), {}, EAGER)
    compiled.call(x)
    last, sin = box.last, kept["sin"]
    results = replay_stages(compiled, [x])
    assert {"box.last", "kept['sin']", "gradient of x"} <= set(results[-1].values)
    assert not compare_stages(results)
    assert box.last is last
    assert kept["sin"] is sin
