"""What a function leaves behind, over several calls: when it is compiled anew, and what it finds."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.model.codec import decode, encode
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.render.text.report import Shown, report_text

EAGER = CompileOptions(backend="eager")


class Last(nn.Module):
    """Reads what it has written."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.linear(x)
        return self.last.tanh()


class Average(nn.Module):
    """A running average in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        self.mean = self.mean * 0.5 + x
        return self.mean.sin()


class Recurrent(nn.Module):
    """A hidden state that the first call makes."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 3)
        self.hidden: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.hidden is None:
            self.hidden = torch.zeros(2, 3)
        self.hidden = self.cell(x, self.hidden)
        return self.hidden


class InContainers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: dict[str, Any] = {"mean": torch.zeros(3), "scale": 2.0}

    def forward(self, x: Tensor) -> Tensor:
        self.state["mean"] = self.state["mean"] * 0.5 + x
        return self.state["mean"].sin() * self.state["scale"]


class Displayed(nn.Module):
    """Tensors and views of them that other code reads, by name and by item."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.hidden: Any = None
        self.maps: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        self.hidden, self.maps["hidden"], self.maps["row"] = hidden, hidden, hidden[0]
        return hidden.tanh()


def variants(compiled: Any) -> int:
    if isinstance(compiled, nn.Module):
        compiled = inspect.getclosurevars(type(compiled).__call__).nonlocals["call"]
    found = inspect.getclosurevars(compiled).nonlocals["variants_of"]
    return sum(map(len, found.values()))


def held(module: nn.Module) -> list[Tensor]:
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    return [leaf for leaf in torch.utils._pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


@pytest.mark.parametrize("kind", [Last, Displayed])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_calls_in_a_row(kind: Callable[[], nn.Module], requires_grad: bool) -> None:
    torch.manual_seed(0)
    eager = kind()
    torch.manual_seed(0)
    module = kind()
    compiled = aotlens.compile(module, options=EAGER)
    given = [torch.randn(2, 3) for _ in range(5)]
    results: tuple[list[Tensor], list[Tensor]] = ([], [])
    leaves: tuple[list[Tensor], list[Tensor]] = ([], [])
    for x in given:
        for side, call in enumerate((eager, compiled)):
            leaves[side].append(x.clone().requires_grad_(requires_grad))
            results[side].append(call(leaves[side][-1]))
        torch.testing.assert_close(results[0][-1], results[1][-1])
        assert results[0][-1].requires_grad == results[1][-1].requires_grad
        torch.testing.assert_close(held(eager), held(module))
    assert variants(compiled) <= 3
    if requires_grad:
        sums = [torch.stack([row.sum() for row in side]).sum() for side in results]
        expected = torch.autograd.grad(sums[0], leaves[0])
        torch.testing.assert_close(torch.autograd.grad(sums[1], leaves[1]), expected)


@pytest.mark.parametrize("kind", [Average, Recurrent, InContainers])
def test_a_tensor_that_one_call_leaves_for_the_next_is_refused(kind: Callable[[], nn.Module]) -> None:
    module, x = kind(), torch.ones(2, 3)
    before = held(module)
    compiled = aotlens.compile(module, options=EAGER)
    if kind is Recurrent:
        compiled(x)  # the first call makes the state
        before = held(module)
    with pytest.raises(
        UnsupportedError, match="a tensor that is no buffer, and binds it to another one"
    ) as told:
        compiled(x)
    assert told.value.name == "rebound-tensor-is-read"
    assert all(now is then for now, then in zip(held(module), before, strict=True))


def test_a_backward_that_reads_what_the_function_binds_is_refused() -> None:
    box = Box()

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * box.last

    def step(x: Tensor) -> Any:
        result = Scaled.apply(x)
        box.last = x.detach() * 3
        return result

    box.last = torch.ones(3)
    with pytest.raises(UnsupportedError, match=r"reads `box.last`, a tensor that is no buffer"):
        aotlens.compile(step, options=EAGER)(torch.ones(3, requires_grad=True))
    assert box.last.tolist() == [1, 1, 1]


class Box:
    """An object that is given."""

    def __init__(self) -> None:
        self.last: Any = None


def fill(x: Tensor, box: Box) -> Tensor:
    box.last = x * 2
    return x


def test_objects_among_the_arguments() -> None:
    compiled = aotlens.compile(fill, options=EAGER)
    first, second = Box(), Box()
    for box in (first, second, first):
        compiled(torch.ones(3), box)
    for box in (first, second):
        torch.testing.assert_close(box.last, torch.full((3,), 2.0))
    alone = compile_direct(fill, (torch.ones(3), first), {}, EAGER)
    with pytest.raises(ValueError, match="`box` must be the object that it was compiled for"):
        alone.call(torch.ones(3), second)


def test_results_and_what_is_left_are_the_same_objects() -> None:
    state: dict[str, Any] = {}

    def step(x: Tensor) -> Any:
        state["sin"], state["x"] = x.sin(), x
        return state, state["sin"]

    compiled = aotlens.compile(step, options=EAGER)
    for _ in range(3):
        x = torch.ones(3)
        result, sin = compiled(x)
        assert result is state
        assert sin is state["sin"]
        assert state["x"] is x
    assert variants(compiled) == 2


def test_an_argument_that_is_given_back_is_itself() -> None:
    def step(x: Tensor, state: dict[str, Any]) -> Any:
        state["out"] = x * 2
        return state, state["out"]

    state: dict[str, Any] = {}
    result, out = aotlens.compile(step, options=EAGER)(torch.ones(3), state)
    assert result is state
    assert out is state["out"]


def test_what_is_left_is_shown_with_its_place() -> None:
    kept: dict[str, Tensor] = {}

    def step(x: Tensor) -> Tensor:
        hidden = x * 2
        kept["hidden"] = hidden
        return hidden.sin()

    target = compile_direct(step, (torch.ones(3),), {}, EAGER).target()
    assert target.wrapper is not None
    row = next(row for row in target.wrapper.steps if row.name == "replay side effects")
    assert row.reason == "the function changes the dict `kept`"
    assert [site.text for site in row.sites] == ['kept["hidden"]']
    names = [(output.name, output.is_side_effect) for output in target.outputs]
    assert names == [("out", False), ("kept['hidden']", True)]
    assert kept == {}


class Leaving(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.last = torch.zeros(0)
        self.stats = {"mean": torch.zeros(3), "sum": torch.zeros(3)}
        self.running: Tensor
        self.register_buffer("running", torch.zeros(3))

    def forward(self, x: Tensor, state: dict[str, Tensor], kept: list[Tensor]) -> Tensor:
        hidden = self.linear(x)
        self.last = hidden
        self.stats["mean"] = hidden.mean(0)
        self.stats["sum"] = hidden.sum(0)
        state["x"] = hidden * 2
        kept[0] = x * 3
        self.running = self.running * 0.5 + x.detach().mean(0)
        return hidden.relu()


def test_each_place_is_told_with_its_line_and_what_is_done_there() -> None:
    args = (torch.ones(2, 3), {"old": torch.zeros(2)}, [torch.zeros(2)])
    report = aotlens.inspect(Leaving(), *args)
    (target,) = report.targets
    told = {
        row.name: (
            row.handling,
            [target.outputs[at].name for at in row.outputs],
            [site.text for site in row.sites],
        )
        for row in target.side_effects
    }
    assert told == {
        "state['x']": ("set", ["state['x']"], ['state["x"]']),
        "kept[0]": ("set", ["kept[0]"], ["kept[0]"]),
        "self.last": ("bound", ["self.last"], ["self.last"]),
        "self.stats['mean']": ("set", ["self.stats['mean']"], ['self.stats["mean"]']),
        "self.stats['sum']": ("set", ["self.stats['sum']"], ['self.stats["sum"]']),
        "running": ("bound", ["running"], ["self.running"]),
    }
    assert decode(encode(report)) == report
    text = report_text(report, Shown(is_full=True))
    assert "self.last           bound\n      each call binds it to the new value\n" in text
    assert "Outputs  1, and 6 as side effects" in text


def test_a_failing_function_leaves_nothing() -> None:
    kept: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        kept.append(x * 2)
        raise KeyError("no")

    with pytest.raises(KeyError):
        aotlens.compile(step, options=EAGER)(torch.ones(3))
    assert kept == []


def test_export_refuses() -> None:
    kept: dict[str, Tensor] = {}

    def step(x: Tensor) -> Tensor:
        kept["x"] = x * 2
        return x

    with pytest.raises(UnsupportedError, match="export of `step`, which stores a value in the dict `kept`"):
        aotlens.export(step, torch.ones(3))
