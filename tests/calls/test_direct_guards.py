"""`aotlens.compile` compiles anew when the variables and modules that the function reads change."""

import functools
import importlib
import random
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from tests.programs.operators.distributed import not_spread
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
