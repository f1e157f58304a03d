"""One program per kind of recompilation."""

from dataclasses import dataclass
from enum import Enum

import torch
from torch import nn

from tests.dynamo.program import Programs, compiled, vector

RECOMPILATIONS = Programs()
program = RECOMPILATIONS
FLAG = "a"


@program(causes=(("size", "x.shape[0]", "4", "5"),), guarded="x + 1")
def second_size() -> None:
    @compiled
    def f(x):
        return x + 1  # HERE

    f(vector(4))
    f(vector(5))
    f(vector(6))


@program(causes=(("size", "x.shape[0]", "4", "5"), ("size", "x.shape[1]", "2", "3")), guarded="x + 1")
def two_sizes() -> None:
    @compiled
    def f(x):
        return x + 1  # HERE

    f(torch.ones(4, 2))
    f(torch.ones(5, 2))
    f(torch.ones(6, 3))


@program(
    causes=(("size", "x.shape[0]", "4", "5"), ("size", "x.shape[0]", ">= 2", "1")),
    guarded="x + 1",
    constants=(("x.shape[0]", "1", "0/1", "x + 1"),),
)
def size_one() -> None:
    @compiled
    def f(x):
        return x + 1  # HERE

    f(vector(4))
    f(vector(5))
    f(vector(1))


@program(
    causes=(("size", "x.shape[0]", "4", "5"), ("size", "x.shape[0]", "2 to 6", "9")),
    guarded="x.shape",
)
def size_out_of_a_range() -> None:
    @compiled
    def f(x):
        return x + 1 if x.shape[0] > 6 else x + 2  # HERE

    f(vector(4))
    f(vector(5))
    f(vector(9))


@program(causes=(("rank", "x.ndim", "1", "2"),), guarded="x + 1")
def rank() -> None:
    @compiled
    def f(x):
        return x + 1  # HERE

    f(vector())
    f(torch.ones(2, 2))


@program(causes=(("dtype", "x.dtype", "float32", "float64"),), guarded="x + 1")
def dtype() -> None:
    @compiled
    def f(x):
        return x + 1  # HERE

    f(vector())
    f(vector(dtype=torch.float64))


@program(causes=(("requires_grad", "x.requires_grad", "False", "True"),), guarded="x + 1")
def requires_grad() -> None:
    @compiled
    def f(x):
        return x + 1  # HERE

    f(vector())
    f(vector(requires_grad=True))


@program(causes=(("stride", "x.stride(0)", "3", "1"),), guarded="x + 1")
def stride() -> None:
    @compiled
    def f(x):
        return x + 1  # HERE

    f(torch.ones(3, 3))
    f(torch.ones(3, 3).t())


@program(causes=(("number", "k", "2", "3"),), guarded="x + k")
def whole_number() -> None:
    @compiled
    def f(x, k):
        return x + k  # HERE

    for k in (2, 3, 4):
        f(vector(), k)


@program(causes=(("number", "k", "0.5", "0.25"),), guarded="x * k")
def float_argument() -> None:
    @compiled
    def f(x, k):
        return x * k  # HERE

    for k in (0.5, 0.25, 0.125):
        f(vector(), k)


@program(causes=(("number", "k", "2", "2.5"),), guarded="x + k")
def type_of_number() -> None:
    @compiled
    def f(x, k):
        return x + k  # HERE

    f(vector(), 2)
    f(vector(), 2.5)


@program(causes=(("type", "mask", "None", "f32[4]"),), guarded="mask is None")
def none_or_tensor() -> None:
    @compiled
    def f(x, mask=None):
        return x + 1 if mask is None else x * mask  # HERE

    f(vector())
    f(vector(), vector())


@program(causes=(("type", "mask", "Tensor", "None"),), guarded="")
def tensor_or_none() -> None:
    @compiled
    def f(x, mask=None):
        return x + 1 if mask is None else x * mask

    f(vector(), vector())
    f(vector())


@program(causes=(("value", "mode", "'a'", "'b'"),), guarded='mode == "a"')
def string() -> None:
    @compiled
    def f(x, mode):
        return x + 1 if mode == "a" else x + 2  # HERE

    f(vector(), "a")
    f(vector(), "b")


@program(causes=(("value", "flag", "True", "False"),))
def boolean() -> None:
    @compiled
    def f(x, flag):
        return x + 1 if flag else x + 2

    f(vector(), True)
    f(vector(), False)


@program(causes=(("value", "FLAG", "'a'", "'b'"),), guarded='FLAG == "a"')
def global_value() -> None:
    global FLAG
    FLAG = "a"

    @compiled
    def f(x):
        return x + 1 if FLAG == "a" else x + 2  # HERE

    f(vector())
    FLAG = "b"
    f(vector())


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return x + self.step


@program(causes=(("number", "self.step", "0", "1"), ("number", "self.step", "1", "2")))
def counter_on_module() -> None:
    module = compiled(Counter())
    for _ in range(3):
        module(vector())


@program(causes=tuple(("number", "self.step", str(k), str(k + 1)) for k in range(8)), limit_hit=True)
def counter_to_the_limit() -> None:
    module = compiled(Counter())
    for _ in range(11):
        module(vector())


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Counter(), Counter()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[1](x)


@program(causes=(("number", "self.blocks[1].step", "0", "1"),))
def counter_in_nested_module() -> None:
    module = compiled(Outer())
    module(vector())
    module(vector())


@program(
    causes=(("length", "len(cache)", "0", "1"), ("length", "len(cache)", "1", "2")), guarded="len(cache)"
)
def growing_list() -> None:
    @compiled
    def f(x, cache):
        return x + len(cache)  # HERE

    cache: list[int] = []
    for _ in range(3):
        f(vector(), cache)
        cache.append(1)


@program(causes=(("keys", "kw['mask']", "absent", "f32[4]"),), guarded='"mask" in kw')
def optional_keyword() -> None:
    @compiled
    def f(x, **kw):
        return x * kw["mask"] if "mask" in kw else x + 1  # HERE

    f(vector())
    f(vector(), mask=vector())


@program(causes=(("mode", "grad mode", "enabled", "disabled"),))
def grad_mode() -> None:
    @compiled
    def f(x):
        return x + 1

    f(vector())
    with torch.no_grad():
        f(vector())


@program(causes=(("mode", "the default dtype", "", ""),))
def default_dtype() -> None:
    @compiled
    def f(x):
        return x + 1

    f(vector())
    torch.set_default_dtype(torch.float64)
    try:
        f(torch.ones(4, dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)


@program(causes=(("value", "self.body[1].training", "True", "False"),))
def train_and_eval() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) if self.training else x

    net = Net()
    f = compiled(net)
    f(vector())
    net.eval()
    f(vector())


@program(causes=(("object", "function", "", "cosine"),))
def other_function() -> None:
    def sine(x):
        return x.sin()

    def cosine(x):
        return x.cos()

    @compiled
    def f(x, function):
        return function(x)

    f(vector(), sine)
    f(vector(), cosine)


@dataclass
class Config:
    lr: float = 0.5


@program(causes=(("number", "config.lr", "0.5", "0.25"),), guarded="x * config.lr")
def number_on_object() -> None:
    @compiled
    def f(x, config):
        return x * config.lr  # HERE

    config = Config()
    f(vector(), config)
    config.lr = 0.25
    f(vector(), config)


class Kind(Enum):
    ONE = 1
    TWO = 2


@program(causes=(("object", "kind", "", "Kind.TWO"),))
def enum_member() -> None:
    @compiled
    def f(x, kind):
        return x + 1 if kind is Kind.ONE else x + 2

    f(vector(), Kind.ONE)
    f(vector(), Kind.TWO)


@program(
    causes=(("size", "x.shape[0]", "!= 5", "5"),),
    guarded="x.shape[0] == 5",
    constants=(("x.shape[0]", "5", "compared", "x.shape[0] == 5"),),
)
def size_compared() -> None:
    @compiled(dynamic=True)
    def f(x):
        return x + 1 if x.shape[0] == 5 else x + 2  # HERE

    f(vector(4))
    f(vector(5))


@program(
    causes=(
        (
            "size relation",
            "x.shape[0] and y.shape[0]",
            "x.shape[0] <= y.shape[0]",
            "x.shape[0] = 9, y.shape[0] = 3",
        ),
    ),
    guarded="x.shape[0] > y.shape[0]",
)
def sizes_compared() -> None:
    @compiled(dynamic=True)
    def f(x, y):
        return x + 1 if x.shape[0] > y.shape[0] else x + 2  # HERE

    f(vector(4), vector(6))
    f(vector(9), vector(3))


@program(
    breaks=(("x.sum().item()", "GB0124", "graph split"),),
    causes=(("number", "the value of `x.sum().item()`", "10.0", "20.0"),),
)
def number_behind_a_break() -> None:
    @compiled
    def f(x):
        scale = x.sum().item()  # HERE
        return x * scale

    f(vector())
    f(vector() * 2)


@program(
    breaks=(('print("half way")', "GB0059", "graph split"),),
    causes=(("size", "x.shape[0]", "4", "5"), ("size", "y.shape[0]", "4", "5")),
)
def size_on_both_sides_of_a_break() -> None:
    @compiled
    def f(x):
        y = x.sin()
        print("half way")  # HERE
        return y.cos()

    f(vector(4))
    f(vector(5))


@program(causes=(("type", "x", "Tensor", "int"),))
def tensor_or_number() -> None:
    @compiled
    def f(x, y):
        return x + y

    f(vector(), vector())
    f(1, vector())
