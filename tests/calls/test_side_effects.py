"""What a function leaves behind, over several calls: when it is compiled anew, and what it finds."""

import inspect
import itertools
import random
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.model.codec import decode, encode
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.render.text.report import Shown, report_text
from aotlens.verify.locate.stages import compare_stages, replay_stages

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
    names = [(output.name, output.left) for output in target.outputs]
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
        row.place: (
            row.handling,
            [target.outputs[at].name for at in row.outputs],
            [site.text for site in row.sites],
        )
        for row in target.left
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


def test_what_a_layer_of_torchs_is_given_is_checked_at_each_call() -> None:
    layer: Any = nn.Linear(3, 3)
    layer.scale, layer.shift = 2.0, torch.ones(3)
    compiled = aotlens.compile(lambda x: x * layer.scale + layer.shift, options=EAGER)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0))
    layer.scale = 3.0
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 4.0))
    layer.shift = torch.zeros(3)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0))


class GivesToLayers(nn.Module):
    """One way of many to give tensors to a layer: by its own code, or by that of the one above."""

    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.layer.weight


class BufferAtEachCall(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        self.register_buffer("last", x.detach().mean(0))
        return self.layer(x) + self.last


class BufferOfTheFirstCall(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        if not hasattr(self.layer, "mean"):
            self.layer.register_buffer("mean", torch.zeros(3), persistent=False)
        self.layer.mean.mul_(0.9).add_(x.detach().mean(0))
        return self.layer(x) + self.layer.mean


class ParameterOfTheFirstCall(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        if not hasattr(self.layer, "scale"):
            self.layer.scale = nn.Parameter(torch.full((3,), 2.0))
        return self.layer(x) * self.layer.scale


class WeightAtEachCall(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        self.layer.bias = nn.Parameter(self.layer.bias.detach() * 0.5)
        return self.layer(x)


class OneOfTwoTied(GivesToLayers):
    def forward(self, x: Tensor) -> Any:
        self.tied.weight = nn.Parameter(self.layer.weight.detach() * 2)
        return self.layer(self.tied(x))


GIVING = [BufferAtEachCall, BufferOfTheFirstCall, ParameterOfTheFirstCall, WeightAtEachCall, OneOfTwoTied]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", GIVING)
def test_parameters_and_buffers_that_a_call_gives_to_layers(kind: type[GivesToLayers], dynamic: bool) -> None:
    torch.manual_seed(0)
    eager, module = kind(), kind()
    module.load_state_dict(eager.state_dict())
    compiled = aotlens.compile(module, options=CompileOptions(backend="eager", dynamic=dynamic))
    for rows in (2, 4, 4):
        x = torch.randn(rows, 3)
        results = [call(x) for call in (eager, compiled)]
        torch.testing.assert_close(results[1], results[0])
        for result in results:
            result.sum().backward()
        for listed in (nn.Module.named_parameters, nn.Module.named_buffers):
            before, now = (dict(listed(one, remove_duplicate=False)) for one in (eager, module))
            torch.testing.assert_close(now, before)
            gradients = [{name: one.grad for name, one in found.items()} for found in (before, now)]
            assert [type(one) for one in now.values()] == [type(one) for one in before.values()]
            torch.testing.assert_close(gradients[1], gradients[0])
        assert [name for name in vars(module.layer) if name not in vars(eager.layer)] == []
        assert module.state_dict().keys() == eager.state_dict().keys()


def test_a_layer_that_a_call_makes_is_refused() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict()

        def forward(self, x: Tensor) -> Any:
            if "first" not in self.heads:
                self.heads["first"] = nn.Linear(3, 2)
            return self.heads["first"](x)

    module = Grows()
    for compiled in (aotlens.compile(module, options=EAGER), aotlens.aot_module(module, aotlens.nop)):
        with pytest.raises(
            UnsupportedError, match=r"a layer \(`Linear`\) that the function creates and stores in"
        ):
            compiled(torch.ones(2, 3))
        assert len(module.heads) == 0


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
yielded: Any = (2 * one for one in [1, 2, 3])
context: Any = ContextVar("context", default=1)

HIDDEN: dict[str, tuple[Callable[[], Any], str]] = {
    "python": (random.random, "uses random numbers from `random`"),
    "own": (own.random, "uses random numbers from `Random`"),
    "numpy": (lambda: float(np.random.rand()), r"uses random numbers from `numpy\.random`"),
    "numpy's state": (lambda: float(numbers.rand()), "uses random numbers from `numbers`"),
    "numpy's generator": (lambda: float(new_numbers.random()), "uses random numbers from `new_numbers`"),
    "count": (lambda: next(counted), "takes items from the iterator `counted`"),
    "pairs": (lambda: next(paired)[1], "takes items from the iterator `paired`"),
    "generator": (lambda: next(yielded), "takes items from the iterator `yielded`"),
    "context": (lambda: context.set(context.get() + 1) and 1, "sets the context variable `context`"),
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
