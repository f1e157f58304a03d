"""One program per kind of graph break."""

import copy
import json
import logging
import time
import warnings

import numpy as np
import torch
from torch import nn

from tests.dynamo.program import Programs, compiled, vector

BREAKS = Programs()
program = BREAKS
SPLIT, REST, WHOLE = "graph split", "rest in eager", "function in eager"
log = logging.getLogger("aotlens.tests.dynamo")


@program(breaks=(("x.sum() > 0", "GB0170", SPLIT),))
def branch_on_data() -> None:
    @compiled
    def f(x):
        if x.sum() > 0:  # HERE
            x = x * 2
        return x.sin()

    f(vector())


@program(breaks=(("x.sum().item()", "GB0124", SPLIT),))
def item_as_number() -> None:
    @compiled
    def f(x):
        scale = x.sum().item()  # HERE
        return x * scale

    f(vector())


@program(breaks=(("float(x[0])", "GB0124", SPLIT),))
def float_of_tensor() -> None:
    @compiled
    def f(x):
        return x * float(x[0])  # HERE

    f(vector())


@program(breaks=(("int(x[0])", "GB0124", SPLIT),))
def int_of_tensor() -> None:
    @compiled
    def f(x):
        return x * int(x[0])  # HERE

    f(vector())


@program(breaks=(("x.tolist()", "GB0109", SPLIT),))
def tolist() -> None:
    @compiled
    def f(x):
        values = x.tolist()  # HERE
        return x * values[0]

    f(vector())


@program(breaks=(("x[x > 1]", "GB0036", SPLIT),))
def boolean_selection() -> None:
    @compiled
    def f(x):
        chosen = x[x > 1]  # HERE
        return chosen.sum()

    f(vector())


@program(breaks=(("torch.nonzero(x)", "GB0036", SPLIT),))
def nonzero() -> None:
    @compiled
    def f(x):
        return torch.nonzero(x).float().sum()  # HERE

    f(vector())


@program(breaks=(("torch.unique(x)", "GB0036", SPLIT),))
def unique() -> None:
    @compiled
    def f(x):
        return torch.unique(x).sum()  # HERE

    f(vector())


@program(breaks=(("torch.masked_select(x, x > 1)", "GB0036", SPLIT),))
def masked_select() -> None:
    @compiled
    def f(x):
        return torch.masked_select(x, x > 1).sum()  # HERE

    f(vector())


@program(breaks=(('print("half way")', "GB0059", SPLIT),))
def print_text() -> None:
    @compiled
    def f(x):
        y = x.sin()
        print("half way")  # HERE
        return y.cos()

    f(vector())


@program(breaks=(('log.warning("half way")', "GB0291", SPLIT),))
def logging_call() -> None:
    @compiled
    def f(x):
        y = x.sin()
        log.warning("half way")  # HERE
        return y.cos()

    f(vector())


@program(breaks=(('warnings.warn("half way", stacklevel=1)', "GB0007", SPLIT),))
def warning() -> None:
    @compiled
    def f(x):
        y = x.sin()
        warnings.warn("half way", stacklevel=1)  # HERE
        return y.cos()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(vector())


@program(
    breaks=(("time.time()", "GB0007", SPLIT),),
    releases={"2.15": {"breaks": (("time.time()", "GB9193", SPLIT),)}},
)
def clock() -> None:
    @compiled
    def f(x):
        y = x.sin()
        time.time()  # HERE
        return y.cos()

    f(vector())


@torch.compiler.disable
def by_hand(x):
    return x + 1


@program(breaks=(("by_hand(x)", "GB0098", SPLIT),))
def disabled_function() -> None:
    @compiled
    def f(x):
        return by_hand(x).sin()  # HERE

    f(vector())


@program(breaks=(("torch._dynamo.graph_break()", "GB0025", SPLIT),))
def break_by_name() -> None:
    @compiled
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()  # HERE
        return y.cos()

    f(vector())


@program(
    breaks=(("copy.deepcopy(x)", "GB4198", SPLIT),),
    releases={"2.11": {"breaks": (("copy.deepcopy(x)", "GB0179", SPLIT),)}},
)
def deepcopy() -> None:
    @compiled
    def f(x):
        other = copy.deepcopy(x)  # HERE
        return other + x

    f(vector())


@program(breaks=(("y.backward()", "GB0123", SPLIT),))
def backward() -> None:
    @compiled
    def f(x):
        y = (x * 2).sum()
        y.backward()  # HERE
        return y + 1

    f(vector(requires_grad=True))


@program(breaks=(('open("/dev/null")', "GB0059", SPLIT), ("file.close()", "GB0156", SPLIT)))
def open_file() -> None:
    @compiled
    def f(x):
        file = open("/dev/null")  # HERE
        file.close()  # HERE
        return x + 1

    f(vector())


@program(breaks=(('open("/dev/null")', "GB0059", SPLIT), ('open("/dev/null")', "GB0142", WHOLE)))
def open_in_with() -> None:
    @compiled
    def f(x):
        y = x + 1
        with open("/dev/null") as file:  # HERE
            file.read()
        return y * 2

    f(vector())


@program(
    breaks=(
        ('torch.no_grad(), open("/dev/null")', "GB0142", WHOLE),
        ('open("/dev/null")', "GB0059", SPLIT),
    )
)
def open_as_second_item_of_with() -> None:
    @compiled
    def f(x):
        y = x + 1
        with torch.no_grad(), open("/dev/null") as file:  # HERE
            file.read()
        return y * 2

    f(vector())


@program(breaks=(("x.sum() > 0", "GB0170", WHOLE),))
def branch_in_loop() -> None:
    @compiled
    def f(x):
        for _ in range(2):
            if x.sum() > 0:  # HERE
                x = x * 2
        return x

    f(vector())


@program(
    breaks=(("x.sum() > 0", "GB0170", WHOLE),),
    # the condition is compiled twice, first before the loop, where Dynamo can split the graph
    releases={"Python 3.11": {"breaks": (("x.sum() > 0", "GB0170", SPLIT),)}},
)
def while_on_tensor() -> None:
    @compiled
    def f(x):
        while x.sum() > 0:  # HERE
            x = x - 1
        return x

    f(vector())


@program(breaks=(('print("inside")', "GB0059", WHOLE),))
def print_in_try() -> None:
    @compiled
    def f(x):
        try:
            print("inside")  # HERE
        except ValueError:
            x = x + 1
        return x + 2

    f(vector())


@program(breaks=(("x.sum() > 0", "GB0170", SPLIT),))
def conditional_expression() -> None:
    @compiled
    def f(x):
        y = x * 2 if x.sum() > 0 else x  # HERE
        return y.sin()

    f(vector())


@program(breaks=(("bool(x.sum() > 0)", "GB0124", SPLIT),))
def bool_of_tensor() -> None:
    @compiled
    def f(x):
        known = bool(x.sum() > 0)  # HERE
        return x * known

    f(vector())


def helper(x):
    y = x.sin()
    print("in the helper")
    return y.cos()


@program(breaks=(('print("in the helper")', "GB0059", SPLIT),))
def break_in_helper() -> None:
    @compiled
    def f(x):
        return helper(x) + helper(x + 1)

    f(vector())


@program(
    breaks=(("json.dumps({'a': [1, 2]}, indent=1)", "GB0007", SPLIT),),
    releases={
        "2.11": {"breaks": (("json.dumps({'a': [1, 2]}, indent=1)", "GB0191", SPLIT),)},
        "Python 3.13": {"breaks": (("json.dumps({'a': [1, 2]}, indent=1)", "GB0156", SPLIT),)},
    },
)
def break_in_library() -> None:
    @compiled
    def f(x):
        json.dumps({'a': [1, 2]}, indent=1)  # HERE  # fmt: skip
        return x + 1

    f(vector())


@program(breaks=(("def produce(x):", "GB0003", WHOLE),))
def generator() -> None:
    @compiled
    def produce(x):  # HERE
        yield x + 1

    list(produce(vector()))


@program(breaks=(("print(y.sum())", "GB0059", SPLIT), ("y.max().item()", "GB0124", SPLIT)))
def two_breaks() -> None:
    @compiled
    def f(x):
        y = x.sin()
        print(y.sum())  # HERE
        return y * y.max().item()  # HERE

    f(vector())


@program(breaks=(("np.random.permutation(3)", "GB0294", SPLIT),))
def numpy_random() -> None:
    @compiled
    def f(x):
        order = np.random.permutation(3)  # HERE
        return x + len(order)

    f(vector())


class Printing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        print(y.shape)
        return torch.relu(y)


@program(
    breaks=(("print(y.shape)", "GB0059", SPLIT),),
    causes=(("requires_grad", "x.requires_grad", "False", "True"),),
)
def break_in_module() -> None:
    compiled(nn.Sequential(Printing(), Printing()))(torch.ones(2, 4))


UNTRACED_HASH = {"breaks": (("hash(x)", "GB0059", SPLIT),)}
TRACED_HASH = {"breaks": (("x + number % 2", "GB0055", WHOLE),)}


@program(
    breaks=(("number % 2", "GB0088", WHOLE),),
    releases={
        "2.11": UNTRACED_HASH,
        "2.12": UNTRACED_HASH,
        "2.14": TRACED_HASH,
        "2.15": TRACED_HASH,
    },
)
def hash_of_tensor() -> None:
    @compiled
    def f(x):
        number = hash(x)  # HERE
        return x + number % 2  # HERE

    f(vector())


@program(
    breaks=(("y.requires_grad_()", "GB8985", SPLIT),),
    releases={"2.11": {"breaks": (("y.requires_grad_()", "GB0125", SPLIT),)}},
)
def requires_grad_inside() -> None:
    @compiled
    def f(x):
        y = x * 2
        y.requires_grad_()  # HERE
        return y

    f(vector())


@program(breaks=())
def nothing_breaks() -> None:
    @compiled
    def f(x):
        assert x.shape[0] == 4
        return torch.where(x > 1, x, 0.0).sum()

    f(vector())


@program(breaks=(("half.sum() > 3", "GB0170", "function in eager"),))
def generator_of_a_function_in_eager() -> None:
    def halves(x):
        for _ in range(2):
            x = x / 2
            yield x

    @compiled
    def f(x):
        for half in halves(x):
            if half.sum() > 3:  # HERE
                x = x + half
        return x

    f(vector())
