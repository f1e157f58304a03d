"""Python: state outside of the function, and random numbers."""

import functools
import itertools
import random

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

import aotlens
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


class Record:
    """Something that a function makes and stores."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


@shows("lazy-module")
def layer_without_parameters() -> None:
    layer = aotlens.compile(nn.LazyLinear(3), options=EAGER)
    layer(torch.ones(2, 4))


@shows("torchscript-module")
def scripted_layer() -> None:
    layer = torch.jit.script(nn.Linear(3, 3))

    @aotlens.compile(options=EAGER)
    def scale(x: Tensor) -> Tensor:
        return layer(x) * 2

    scale(torch.ones(2, 3))


@shows("container-key")
def object_as_a_key() -> None:
    seen: dict[Record, Tensor] = {}

    @aotlens.compile(options=EAGER)
    def remember(x: Tensor) -> Tensor:
        seen[Record(x)] = x * 2
        return x * 3

    remember(torch.ones(3))


@shows("python-random")
def number_from_python() -> None:
    @aotlens.compile(options=EAGER)
    def noisy(x: Tensor) -> Tensor:
        return x * random.random()

    noisy(torch.ones(3))


@shows("iterator")
def next_item_of_a_counter() -> None:
    counter = itertools.count()

    @aotlens.compile(options=EAGER)
    def numbered(x: Tensor) -> Tensor:
        return x * next(counter)

    numbered(torch.ones(3))


@shows("new-layer-side-effect")
def layer_made_by_the_function() -> None:
    layers: dict[str, nn.Linear] = {}

    @aotlens.compile(options=EAGER)
    def grow(x: Tensor) -> Tensor:
        layers["head"] = nn.Linear(3, 3)
        return x * 2

    grow(torch.ones(3))


@shows("outer-optimizer")
def step_of_an_optimizer() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @aotlens.compile(options=EAGER)
    def train(x: Tensor) -> Tensor:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    train(torch.ones(2, 3))


@shows("mode-left-changed")
def default_dtype_that_is_left() -> None:
    @aotlens.compile(options=EAGER)
    def double(x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        return x * 2

    before = torch.get_default_dtype()
    try:
        double(torch.ones(3))
    finally:
        torch.set_default_dtype(before)


class Totals:
    """An object whose attributes no dictionary has."""

    __slots__ = ("loss",)
    loss: Tensor


@shows("write-to-captured-tensor")
def slot_by_its_name() -> None:
    totals = Totals()  # an object with `__slots__ = ("loss",)`
    totals.loss = torch.zeros(3)

    @aotlens.compile(options=EAGER)
    def accumulate(x: Tensor) -> Tensor:
        for name in ("loss",):
            getattr(totals, name).add_(x)
        return x * 2

    accumulate(torch.ones(3))


@shows("new-seed")
def seed_from_the_clock() -> None:
    @aotlens.compile(options=EAGER)
    def noise(x: Tensor) -> Tensor:
        torch.seed()
        return x * torch.rand(3)

    noise(torch.ones(3))


@shows("initial-seed")
def seed_as_a_number() -> None:
    @aotlens.compile(options=EAGER)
    def scaled(x: Tensor) -> Tensor:
        return x * torch.initial_seed()

    scaled(torch.ones(3))


@shows("generator-state")
def generator_that_is_seeded() -> None:
    @aotlens.compile(options=EAGER)
    def noise(generator: torch.Generator) -> Tensor:
        generator.manual_seed(1)
        return torch.rand(3, generator=generator)

    noise(torch.Generator())


@shows("default-generator-state")
def default_generator_that_is_seeded() -> None:
    @aotlens.compile(options=EAGER)
    def noise(x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(3)
        return x * torch.rand(3)

    noise(torch.ones(3))


@shows("argument-class")
def object_with_a_tensor() -> None:
    class Batch:
        def __init__(self) -> None:
            self.weights = torch.ones(3)

    def scale(x: Tensor, batch: Batch) -> Tensor:
        return x * batch.weights

    aotlens.aot_function(scale, fw_compiler=lambda graph, inputs: graph)(torch.ones(3), Batch())


@shows("unexpected-fake")
def a_fake_tensor_from_elsewhere() -> None:
    mode = FakeTensorMode()
    x, offset = mode.from_tensor(torch.ones(2)), mode.from_tensor(torch.ones(2))

    class Adds(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (x + offset,)

    aotlens.aot_module_simplified(Adds(), (x,), aotlens.nop)


@shows("captured-gradient-lost")
def weight_read_by_two_names() -> None:
    weight = torch.ones(3, requires_grad=True)
    scaled = functools.partial(torch.mul, weight)

    @aotlens.compile(options=EAGER)
    def weigh(x: Tensor) -> Tensor:
        return scaled(x) * weight

    weigh(torch.ones(3))


@shows("write-to-free-variable")
def argument_that_is_also_in_a_list() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.totals = [torch.zeros(3)]

        def forward(self, total: Tensor) -> tuple[Tensor]:
            total.add_(1)
            return (total * self.totals[0],)

    module = Counts()
    aotlens.aot_export_module(module, module.totals, trace_joint=False)
