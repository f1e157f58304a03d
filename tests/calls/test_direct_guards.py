"""`aotlens.compile` compiles anew when what the function reads changes, and refuses what it would change."""

import functools
import importlib
import math
import random
import re
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.programs.distributed import not_spread
from tests.programs.program import leaf, plain

EAGER = CompileOptions(backend="eager")
FACTOR = 2.0
TABLE = {"shift": 1.0}


@dataclass
class Config:
    scale: float = 1.5


CONFIG = Config()


def through_global(x: Tensor) -> Tensor:
    return x * FACTOR


def through_dictionary(x: Tensor) -> Tensor:
    return x + TABLE["shift"]


def helper(x: Tensor) -> Tensor:
    return through_global(x) * CONFIG.scale


def through_callee(x: Tensor) -> Tensor:
    return helper(x) + 1


class Scaling(nn.Module):
    offset = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
        self.plain = nn.Linear(3, 3, bias=False)
        self.factor = 2.0
        self.parts = [1.0, 2.0]

    def forward(self, x: Tensor) -> Tensor:
        return self.plain(self.inner(x)) * self.factor * sum(self.parts) + self.offset


def follows(fn: Callable[..., Any], change: Callable[[], None], x: Tensor) -> int:
    """How many compilations a further call takes, after calls before and after a change; all as eager."""
    compiled: Any = aotlens.compile(fn, options=EAGER)
    torch.testing.assert_close(compiled(x), fn(x))
    torch.testing.assert_close(compiled(x), fn(x))
    change()
    torch.testing.assert_close(compiled(x), fn(x))
    seen: list[Any] = []
    with aotlens.observe.observing(on_compiled=seen.append):
        compiled(x)
    return len(seen)


@pytest.mark.parametrize("fn", [through_global, through_callee])
def test_a_global(fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert follows(fn, lambda: monkeypatch.setitem(globals(), "FACTOR", 5.0), plain(3)) == 0


def test_an_item_of_a_global_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    assert follows(through_dictionary, lambda: monkeypatch.setitem(TABLE, "shift", 7.0), plain(3)) == 0


class Lazy(OrderedDict[str, float]):
    """As libraries make their registries: its own methods load what nobody asked for."""

    def __init__(self, items: dict[str, float]) -> None:
        super().__init__(items)

    def __iter__(self) -> Any:
        raise AssertionError("the registry was read")

    keys = values = items = copy = __len__ = clear = __iter__


LAZY = Lazy({"shift": 1.0})


def test_a_dictionary_of_a_class_of_its_own() -> None:
    def shifted(x: Tensor) -> Tensor:
        return x + LAZY["shift"]

    def shifting(x: Tensor) -> Tensor:
        LAZY["shift"] = 3.0
        return x + LAZY["shift"]

    assert follows(shifted, lambda: LAZY.__setitem__("shift", 2.0), plain(3)) == 0
    with pytest.raises(UnsupportedError, match="changes the Lazy `LAZY`"):
        aotlens.compile(shifting, options=EAGER)(plain(3))
    assert dict(dict.items(LAZY)) == {"shift": 2.0}


def test_an_attribute_of_a_global_object(monkeypatch: pytest.MonkeyPatch) -> None:
    assert follows(through_callee, lambda: monkeypatch.setattr(CONFIG, "scale", 4.0), plain(3)) == 0


def test_a_function_that_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert follows(through_callee, lambda: monkeypatch.setitem(globals(), "helper", torch.sin), plain(3)) == 0


def test_a_closure_variable() -> None:
    factor = 2.0

    def change() -> None:
        nonlocal factor
        factor = 3.0

    assert follows(lambda x: x * factor, change, plain(3)) == 0


CHANGES: dict[str, Callable[[Scaling], Any]] = {
    "attribute": lambda module: setattr(module, "factor", 3.0),
    "item of a list": lambda module: module.parts.append(4.0),
    "class attribute": lambda module: setattr(module, "offset", 1.0),
    "submodule": lambda module: setattr(module, "inner", nn.Linear(3, 3)),
    "inner submodule": lambda module: module.inner.__setitem__(0, nn.Linear(3, 3, bias=False)),
    "further submodule": lambda module: module.inner.append(nn.Tanh()),
    "attribute of torch's module": lambda module: setattr(module.inner[1], "inplace", True),
    "hook": lambda module: module.inner[0].register_forward_hook(lambda *seen: seen[-1] * 2),
    "parameter": lambda module: setattr(module.inner[0], "weight", nn.Parameter(torch.ones(3, 3))),
    "parameter that was None": lambda module: setattr(module.plain, "bias", nn.Parameter(torch.ones(3))),
    "frozen": lambda module: module.requires_grad_(False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_module(change: str) -> None:
    module = Scaling().eval()
    assert follows(module, lambda: CHANGES[change](module), leaf(2, 3)) == 0


class Affine(nn.Module):
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.register_buffer("shift", torch.randn(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.shift


def exchange_data(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> None:
    tensor.data = change(tensor.data)


IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "type": torch.Tensor.double,
    "strides": lambda data: data.t().contiguous().t(),
    "view of more memory": lambda data: data.new_ones(8, 12)[::2, ::2],
    "negative": lambda data: torch.ones(4, 6, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("name", ["weight", "shift"])
def test_a_tensor_of_a_module_that_gets_other_memory_in_place_is_compiled_for_anew(
    change: str, name: str
) -> None:
    """A backend's kernels read memory as it was, and `model.to(memory_format=…)` keeps the parameters."""
    module, x = Affine(), plain(4, 6)
    compiled: Any = aotlens.compile(module, options=EAGER)
    compiled(x)
    exchange_data(getattr(module, name), IN_PLACE[change])
    seen: list[Any] = []
    with aotlens.observe.observing(on_compiled=seen.append):
        torch.testing.assert_close(compiled(x), module(x))
        compiled(x)
    assert len(seen) == 1


def test_memory_of_the_same_kind_is_not_compiled_for_anew() -> None:
    module, x = Affine(), plain(4, 6)
    compiled: Any = aotlens.compile(module, options=EAGER)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), module(x))
        exchange_data(module.weight, lambda data: data - 0.1)
    assert len(compiled.compiled) == 1


def test_memory_that_is_an_argument_from_then_on() -> None:
    def added(module: Affine, x: Tensor) -> Tensor:
        x.add_(1)
        return module(x)

    x, eager, module = plain(4, 6), Affine(), Affine()
    module.load_state_dict(eager.state_dict())
    compiled: Any = aotlens.compile(functools.partial(added, module), options=EAGER)
    compiled(x.clone())
    given, expected = x.clone(), x.clone()
    exchange_data(module.shift, lambda data: given)
    exchange_data(eager.shift, lambda data: expected)
    torch.testing.assert_close(compiled(given), added(eager, expected))


@pytest.mark.parametrize("change", ["type", "strides"])
def test_a_tensor_from_outside_that_gets_other_memory_in_place(change: str) -> None:
    shift, x = plain(4, 6), plain(4, 6)
    assert follows(lambda x: x + shift, lambda: exchange_data(shift, IN_PLACE[change]), x) == 0


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_tied_weights_that_are_untied_and_tied_again(dynamic: bool) -> None:
    module, x = TwoLayers(), plain(2, 3)
    compiled: Any = aotlens.compile(module, options=CompileOptions(backend="eager", dynamic=dynamic))
    for weight in (module.first.weight, nn.Parameter(torch.ones(3, 3)), module.first.weight):
        module.second.weight = weight
        torch.testing.assert_close(compiled(x), module(x))
    assert len(compiled.compiled) == 2


def test_a_flat_call_and_an_exported_module_refuse_weights_that_are_untied() -> None:
    module, x = TwoLayers(), plain(2, 3)
    call = compile_direct(module, (x,), {}, EAGER).call
    namespace: dict[str, Any] = {}
    exec(aotlens.export(module, x), namespace)
    exported = namespace["bind"](module)
    for run in (call, exported):
        torch.testing.assert_close(run(x), module(x))
    module.second.weight = nn.Parameter(torch.ones(3, 3))
    with pytest.raises(AssertionError, match=r"`second\.weight` was the same tensor as `first\.weight`"):
        call(x)
    with pytest.raises(ValueError, match=r"tensors are .*'second\.weight'.*exported were"):
        exported(x)


def test_arguments_on_one_memory_in_another_way_are_compiled_for_anew_under_symbolic_sizes() -> None:
    def added(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x * 2

    compiled: Any = aotlens.compile(added, options=CompileOptions(backend="eager", dynamic=True))
    eager, ours = torch.arange(10.0), torch.arange(10.0)
    for first, second in ((0, 4), (4, 0), (2, 2), (0, 4)):
        expected = added(eager[first : first + 4], eager[second : second + 4])
        torch.testing.assert_close(compiled(ours[first : first + 4], ours[second : second + 4]), expected)
        torch.testing.assert_close(ours, eager)


def test_another_default_device() -> None:
    def three() -> Tensor:
        return torch.ones(3)

    compiled: Any = aotlens.compile(three, options=EAGER)
    assert compiled().device.type == "cpu"
    with torch.device("meta"):
        assert compiled().device.type == "meta"
    assert compiled().device.type == "cpu"


def conjugate(x: Tensor) -> Tensor:
    return x.conj()


def elsewhere(x: Tensor) -> Tensor:
    return x.to("meta")


@pytest.mark.parametrize(
    ("x", "change", "wanted"),
    [
        (torch.ones(3), elsewhere, "contiguous on cpu"),
        (torch.ones(3, dtype=torch.complex64), conjugate, "contiguous on cpu, not conjugated"),
        (torch.ones(3, dtype=torch.complex64).conj(), conjugate, "contiguous on cpu, conjugated"),
        (torch.ones(3, dtype=torch.complex64).imag, torch._neg_view, r"\(2,\) on cpu, not negated"),
        (torch.ones(()), torch._neg_view, "contiguous on cpu, not negated"),
    ],
)
def test_a_flat_call_tells_memory_that_reads_otherwise(
    x: Tensor, change: Callable[[Tensor], Tensor], wanted: str
) -> None:
    call = compile_direct(torch.sin, (x,), {}, EAGER).call
    torch.testing.assert_close(call(x), x.sin())
    with pytest.raises(TypeError, match=f"{wanted}, got another"):
        call(change(x))


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_a_gradient_that_is_lazily_negated_or_conjugated(
    shape: tuple[int, ...], dynamic: bool, kind: str
) -> None:
    """A backend is given what lies in memory."""

    def reading(module: Any, inputs: list[Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            assert not any(isinstance(t, Tensor) and (t.is_neg() or t.is_conj()) for t in given)
            return module(*given)

        return run

    x = torch.randn(shape, dtype=torch.complex64 if kind == "complex" else torch.float32, requires_grad=True)
    gradient = torch.randn(shape, dtype=torch.complex64).conj()
    gradient = gradient if kind == "complex" else gradient.imag
    call = aotlens.compile(torch.sin, options=CompileOptions(backend=reading, dynamic=dynamic))
    (found,) = torch.autograd.grad(call(x), x, gradient)
    (expected,) = torch.autograd.grad(x.sin(), x, gradient)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (torch.Tensor.to_sparse, "torch.sparse_coo"),
        (torch.Tensor.to_sparse_csr, "torch.sparse_csr"),
        (torch.Tensor.to_mkldnn, "torch._mkldnn"),
        (lambda x: torch._make_per_tensor_quantized_tensor(x.to(torch.int8), 0.1, 0), "quantized"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # torch's, of layouts that it calls beta
def test_a_tensor_that_is_not_dense_is_refused_by_its_kind(
    make: Callable[[Tensor], Tensor], kind: str
) -> None:
    call = aotlens.compile(torch.sin, options=EAGER)
    call(torch.ones(3, 3))
    with pytest.raises(UnsupportedError, match=f"a {kind} tensor as the input"):
        call(make(torch.ones(3, 3)))


DTYPES = (torch.float32, torch.float64)


def scaled(x: Tensor, step: Any = 1) -> Tensor:
    return x * step * CONFIG.scale


def scaled_by(at: int) -> Tensor:
    CONFIG.scale = at
    return torch.ones(2)


RECOMPILED: dict[str, tuple[Callable[[int], tuple[Any, ...]], str]] = {
    "number": (lambda at: (torch.ones(2), at), "`step` is 7, and was 6: it is a constant; as a tensor"),
    "sizes": (
        lambda at: (torch.ones(at, 3),),
        r"`x` is \[7, 3\], and was \[6, 3\]: `CompileOptions\(dynamic",
    ),
    "strides": (lambda at: (torch.ones(9, at + 1)[:, 0],), "`x` differs in the sizes and strides"),
    "types": (lambda at: (torch.ones(at), torch.ones(1, dtype=DTYPES[at % 2])), "`step` differs in the type"),
    "closure": (lambda at: (scaled_by(at),), "a free variable or the structure of the arguments differs"),
}


@pytest.mark.parametrize("kind", RECOMPILED)
def test_many_compilations_are_told_once_with_the_argument_that_differs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CONFIG, "scale", 1.0)
    arguments, message = RECOMPILED[kind]
    compiled = aotlens.compile(scaled, options=EAGER)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for at in range(12):
            compiled(*arguments(at))
    (warning,) = told
    assert re.search(rf"`scaled` was recompiled 8 times, last because .*{message}", str(warning.message))
    assert warning.filename == __file__


def test_training_flag_and_back() -> None:
    module = Scaling()
    compiled: Any = aotlens.compile(module, options=EAGER)
    x = plain(2, 3)
    for training in (True, False, True, False):
        module.train(training)
        torch.manual_seed(0)
        expected = module(x)
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(x), expected)
    assert len(compiled.compiled) == 2


def test_what_a_hook_of_all_layers_keeps() -> None:
    kept: dict[type, Any] = {}

    def keep(module: nn.Module, args: Any, result: Any) -> None:
        kept[type(module)] = result

    hook = nn.modules.module.register_module_forward_hook(keep)
    try:
        result = aotlens.compile(nn.Linear(3, 3), options=EAGER)(plain(2, 3))
    finally:
        hook.remove()
    assert list(kept) == [nn.Linear]
    assert kept[nn.Linear] is result


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


def test_layers_in_a_closure_get_their_gradients_and_their_names() -> None:
    model = nn.Linear(3, 2)
    compiled: Any = aotlens.compile(lambda x: model(x).square().sum(), options=EAGER)
    x = plain(4, 3)
    for _ in range(2):
        compiled(x).backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    for _ in range(2):
        model(x).square().sum().backward()
    torch.testing.assert_close(found, [parameter.grad for parameter in model.parameters()])
    (only,) = compiled.compiled.values()
    assert [given.slot.name for given in only.captured.inputs] == ["x", "model.weight", "model.bias"]
    model.requires_grad_(False)
    assert not compiled(x).requires_grad
    model.requires_grad_(True)

    def second_derivative(fn: Any) -> Tensor:
        (gradient,) = torch.autograd.grad(fn(x), model.weight, create_graph=True)
        return torch.autograd.grad(gradient.sum(), model.weight)[0]

    torch.testing.assert_close(
        second_derivative(compiled), second_derivative(lambda x: model(x).square().sum())
    )


def test_a_tensor_from_outside_that_is_an_argument_too() -> None:
    total = torch.zeros(3)

    def step(x: Tensor) -> Tensor:
        x.add_(1)
        return total * 2

    compiled = aotlens.compile(step, options=EAGER)
    results = [compiled(x).tolist() for x in (torch.zeros(3), total, torch.zeros(3), total[1:])]

    assert results == [[0.0] * 3, [2.0] * 3, [2.0] * 3, [2.0, 4.0, 4.0]]


def test_a_tensor_from_outside_is_read_at_each_call() -> None:
    table = torch.ones(3)
    compiled = aotlens.compile(lambda x: x * table, options=EAGER)
    first = compiled(torch.ones(3))
    table.add_(1)

    assert torch.equal(first, torch.ones(3))
    assert torch.equal(compiled(torch.ones(3)), table)


def test_a_tensor_from_outside_whose_strides_change() -> None:
    table = torch.arange(4.0).view(2, 2)

    def turn(x: Tensor) -> Tensor:
        table.t_()
        return table + x

    compiled = aotlens.compile(turn, options=EAGER)
    once, twice = compiled(torch.zeros(2, 2)), compiled(torch.zeros(2, 2))

    assert torch.equal(once, twice.t())
    assert torch.equal(table, twice)


def test_places_hold_their_tensors_again_after_an_error() -> None:
    total = torch.zeros(3)

    def step(x: Tensor) -> Tensor:
        total.add_(x)
        raise KeyError("the user's own")

    with pytest.raises(KeyError):
        aotlens.compile(step, options=EAGER)(torch.ones(3))

    assert type(total) is Tensor
    assert torch.equal(total, torch.zeros(3))


class Counting(nn.Module):
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x * self.weight * self.count


def test_a_module_as_argument() -> None:
    compiled = aotlens.compile(lambda model, x: model(x), options=EAGER)
    first, second = Counting(), Counting()
    results = [compiled(model, torch.ones(3)) for model in (first, first, second)]
    results[0].sum().backward()

    assert [result.tolist() for result in results] == [[1.0] * 3, [2.0] * 3, [1.0] * 3]
    assert (first.count.item(), second.count.item()) == (2.0, 1.0)
    assert first.weight.grad is not None
    assert torch.equal(first.weight.grad, torch.ones(3))


def test_the_report_shows_values_that_are_built_in() -> None:
    def step(x: Tensor, times: int) -> Tensor:
        return helper(x) * times + CONFIG.scale

    target = aotlens.inspect(step, torch.ones(3), 2).targets[0]

    assert [(guard.expression, guard.sites[0].text) for guard in target.guards] == [
        ("FACTOR == 2.0", "FACTOR"),
        ("times == 2", "times"),
        ("CONFIG.scale == 1.5", "CONFIG.scale"),
    ]


class Turning(nn.Module):
    """A buffer that lies otherwise after each call."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.arange(16.0).view(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.kept.t_()
        return x @ self.kept


class Growing(nn.Module):
    """A buffer that the layer binds to a longer one."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.kept = torch.cat([self.kept, x])
        return self.kept.sum(0) * self.kept.shape[0]


@pytest.mark.parametrize("kind", [Turning, Growing])
def test_a_buffer_that_lies_otherwise_after_a_call_is_never_taken_as_it_was(kind: type[nn.Module]) -> None:
    x, options = torch.randn(1, 4), CompileOptions(backend="eager")
    eager, module = kind(), kind()
    call = aotlens.compile(module, options=options)
    for _ in range(4):
        torch.testing.assert_close(call(x), eager(x))
    module = kind()
    flat = compile_direct(module, (x,), {}, options).call
    flat(x)
    with pytest.raises(TypeError, match="`kept` must be a tensor like"):
        flat(x)


def test_a_buffer_that_is_turned_is_compiled_anew_in_place_of_functorch() -> None:
    eager, module, x = Turning(), Turning(), torch.randn(1, 4)
    call = aotlens.aot_module(module, lambda gm, _: gm, lambda gm, _: gm)
    for _ in range(4):
        torch.testing.assert_close(call(x), eager(x))


@functools.lru_cache
def ramp(length: int) -> Tensor:
    return torch.arange(length) * FACTOR


class Positions(nn.Module):
    @functools.lru_cache  # noqa: B019 - as users write it
    def table(self, length: int) -> Tensor:
        return torch.arange(length)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table(x.shape[0])


def cached_inside() -> Callable[..., Any]:
    inner = functools.cache(torch.arange)
    return lambda x: x * inner(x.shape[0])


@pytest.mark.parametrize("fn", [lambda x: x + ramp(x.shape[0]), Positions(), cached_inside()])
def test_a_recorded_result_does_not_stay_in_a_cache(fn: Callable[..., Any]) -> None:
    x = plain(3)
    compiled = aotlens.compile(fn, options=EAGER)
    torch.testing.assert_close(compiled(x), fn(x))
    torch.testing.assert_close(compiled(x.double()), fn(x.double()))


def test_what_a_cached_function_reads_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = aotlens.compile(lambda x: x + ramp(x.shape[0]), options=EAGER)
    x = plain(3)
    compiled(x)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    ramp.cache_clear()
    torch.testing.assert_close(compiled(x), x + ramp(3))


def test_a_packages_cache_is_left_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "positions_of_a_package.py").write_text(
        "import functools, torch\n"
        "def kept(fn):\n"
        "    cached = functools.lru_cache(fn)\n"
        "    @functools.wraps(fn)\n"
        "    def call(*args):\n"
        "        return cached(*args)\n"
        "    return call\n"
        "class Positions:\n"
        "    @staticmethod\n"
        "    @kept\n"
        "    def table(length):\n"
        "        return torch.arange(length)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    package: Any = importlib.import_module("positions_of_a_package")
    compiled = aotlens.compile(lambda x: x + package.Positions.table(x.shape[0]), options=EAGER)
    x = plain(3)
    torch.testing.assert_close(compiled(x), x + torch.arange(3))
    assert type(package.Positions.table(3)) is Tensor


class Level(IntEnum):
    LOW = 2
    HIGH = 3


def test_numbers_of_a_class_of_their_own() -> None:
    call: Any = aotlens.compile(lambda x, number: x * number, options=CompileOptions(backend="eager"))
    x = torch.randn(3)
    for number in (Level.LOW, Level.HIGH, np.float64(2.5), np.float64(0.5), 2, Level.LOW):
        assert torch.equal(call(x, number), x * number)
    assert len(call.compiled) == 5


def reduced_in_place(x: Tensor) -> Tensor:
    y = x * 2
    torch.distributed.all_reduce(y)
    return y + 1


def test_a_collective_in_place_draws_nothing_of_the_users() -> None:
    """Torch's fake kernel of one takes an id from `random`."""
    x = not_spread(4).detach()
    before = random.getstate()
    compiled = aotlens.compile(reduced_in_place, options=aotlens.CompileOptions(backend="eager"))
    assert torch.equal(compiled(x), reduced_in_place(x))
    assert random.getstate() == before


class Signed:
    """An object whose attribute is built in."""

    def __init__(self, value: float) -> None:
        self.value = value


def signs(x: torch.Tensor, a: Any) -> torch.Tensor:
    value = a.value if isinstance(a, Signed) else a.real
    return x * math.copysign(1.0, value) + torch.full((2,), value)


@pytest.mark.parametrize("made", [float, Signed, lambda value: complex(value, 1.0)])
def test_zeros_have_a_sign_and_nan_equals_itself(made: Any) -> None:
    x, call = torch.ones(2), aotlens.compile(signs, options=EAGER)
    flat = aotlens.aot_function(signs, fw_compiler=aotlens.nop)
    for value in (0.0, -0.0, 0.0, float("nan"), float("nan"), 1.0):
        expected = signs(x, made(value))
        for found in (call(x, made(value)), *([flat(x, value)] if made is float else [])):
            assert torch.equal(found.signbit(), expected.signbit()) or value != value
            torch.testing.assert_close(found, expected, equal_nan=True)
    if made is float:
        assert len(getattr(call, "compiled")) == 4  # noqa: B009


def test_the_module_text_tells_the_sign_of_zero() -> None:
    x = torch.ones(2)
    call = compile_direct(signs, (x, 0.0), {}, CompileOptions("eager")).call
    assert torch.equal(call(x, 0.0), torch.ones(2))
    with pytest.raises(ValueError, match=r"`a` is the constant 0.0, got -0.0"):
        call(x, -0.0)


def test_a_global_zero_has_a_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    x, call = torch.ones(2), aotlens.compile(signed_by_a_global, options=EAGER)
    assert call(x).tolist() == [1.0, 1.0]
    monkeypatch.setattr(sys.modules[__name__], "ZERO", -0.0)
    assert call(x).tolist() == [-1.0, -1.0]


ZERO = 0.0


def signed_by_a_global(x: torch.Tensor) -> torch.Tensor:
    return x * math.copysign(1.0, ZERO)


def test_a_sparse_tensor_of_the_surroundings() -> None:
    neighbours = torch.eye(3).to_sparse()
    spread = aotlens.compile(lambda x: torch.sparse.mm(neighbours, x), options=EAGER)
    for _ in range(2):
        x = leaf(3, 2)
        spread(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.ones(3, 2))


def test_a_numpy_array_that_is_written_to() -> None:
    offsets = np.zeros(3, dtype=np.float32)
    moved = aotlens.compile(lambda x: x + torch.from_numpy(offsets), options=EAGER)
    x = plain(3)
    torch.testing.assert_close(moved(x), x)
    offsets += 1
    torch.testing.assert_close(moved(x), x + 1)


def test_a_tensor_of_the_surroundings_without_memory_is_filled() -> None:
    """As FSDP gathers a weight."""
    whole, part = torch.zeros(6), torch.arange(6.0)

    def gathered(x: Tensor) -> Tensor:
        with torch.no_grad():
            whole.untyped_storage().resize_(24)
            whole.copy_(part)
        return x * whole

    call, x = aotlens.compile(gathered, options=EAGER), plain(6)
    for _ in range(2):
        whole.untyped_storage().resize_(0)
        torch.testing.assert_close(call(x), x * part)
        torch.testing.assert_close(whole, part)


@pytest.mark.parametrize("gradient", [None, torch.ones(3)])
def test_a_gradient_of_the_surroundings_that_is_read_is_refused(gradient: Tensor | None) -> None:
    weight = leaf(3)
    weight.grad = gradient
    call = aotlens.compile(lambda x: x if weight.grad is None else x * 2, options=EAGER)
    with pytest.raises(UnsupportedError, match=r"reads or changes `weight.grad`"):
        call(plain(3))
    assert weight.grad is gradient


def test_a_backward_hook_of_a_layer_that_keeps_what_it_sees_is_refused() -> None:
    seen: list[Tensor] = []
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_full_backward_hook(lambda layer, inner, outer: seen.extend(outer))
    call = aotlens.compile(model, options=EAGER)
    with pytest.raises(UnsupportedError, match="a hook or a custom backward that changes the list `seen`"):
        call(leaf(2, 3)).sum().backward()
    assert not seen or type(seen[-1]) is Tensor
