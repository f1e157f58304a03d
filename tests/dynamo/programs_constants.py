"""One program per kind of constant and of skipped function."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.dynamo.program import Programs, compiled, vector

CONSTANTS = Programs()
program = CONSTANTS


@program(constants=(("k", "3", "number", "x * k"),))
def number_argument() -> None:
    @compiled
    def f(x, k):
        return x * k  # HERE

    f(vector(), 3)


@program(constants=(("k", "0.5", "number", "x * k"),))
def float_argument() -> None:
    @compiled
    def f(x, k):
        return x * k  # HERE

    f(vector(), 0.5)


@program(constants=(("x.shape[0]", "1", "0/1", "x + 1"),))
def dynamic_size_of_one() -> None:
    @compiled(dynamic=True)
    def f(x):
        return x + 1  # HERE

    f(vector(1))


@program(constants=(("x.shape[0]", "0", "0/1", "x + 1"),))
def dynamic_size_of_zero() -> None:
    @compiled(dynamic=True)
    def f(x):
        return x + 1  # HERE

    f(torch.ones(0))


@program(constants=(("x.shape[0]", "4", "compared", "x.shape[0] == 4"),))
def size_equals() -> None:
    @compiled(dynamic=True)
    def f(x):
        return x + 1 if x.shape[0] == 4 else x  # HERE

    f(vector(4))


@program(constants=(("x.shape[0]", "4", "compared", "x.view(2, 2)"),))
def size_fixed_by_view() -> None:
    @compiled(dynamic=True)
    def f(x):
        return x.view(2, 2)  # HERE

    f(vector(4))


@program(constants=(("x.shape[0]", "4", "compared", "range(x.shape[0])"),))
def size_as_range() -> None:
    @compiled(dynamic=True)
    def f(x):
        for _ in range(x.shape[0]):  # HERE
            x = x + 1
        return x

    f(vector(4))


@program(constants=(("x.shape[0]", "4", "compared", "x + torch.ones(4)"),))
def size_of_constant_tensor() -> None:
    @compiled(dynamic=True)
    def f(x):
        return x + torch.ones(4)  # HERE

    f(vector(4))


@program()
def symbolic_sizes() -> None:
    @compiled(dynamic=True)
    def f(x):
        return x.reshape(x.shape[0], 1).sum()

    f(vector(4))
    f(vector(7))


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@program(skipped=("a TorchDispatchMode is active",))
def under_a_mode() -> None:
    @compiled
    def f(x):
        return x + 1

    with Counting():
        f(vector())


@program()
def without_tensors() -> None:
    @compiled
    def f(number):
        return number + 1

    f(1)


@program(constants=(("x.shape[1]", "4", "required", "self.linear(x)"),))
def size_of_a_layer() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x)  # HERE

    compiled(Scaled(), dynamic=True)(torch.ones(3, 4))


@program(constants=(("x.shape[0]", "4", "compared", "x.shape[0] == 4"),))
def size_compared_in_an_inlined_function() -> None:
    def inner(x):
        return x * 2 if x.shape[0] == 4 else x  # HERE

    @compiled(dynamic=True)
    def f(x):
        return inner(x) + 1

    f(vector())
