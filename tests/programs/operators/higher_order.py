"""Higher-order operators: control flow, marked regions, scans; forward and backward."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as hop_map
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch.nn.attention.flex_attention import flex_attention

from tests.programs.program import Cases, Fixed, leaf, plain

cases = Cases("higher_order")


WRITABLE = frozenset({"write"})
"""Eager gives these results as views made inside of torch's own autograd function, and so forbids writes to
them; ours are plain results."""


COUNTED = frozenset({"version"})
"""A write in the branch that was not taken counts here; in eager it has not happened.  Nothing is saved."""


def flag(value: float = 0.0) -> Tensor:
    """A condition that another seed may turn over."""
    return torch.randn(()) > value


@cases(lambda: (plain(3), flag()), "dynamo", "dynamic", "inductor")
def cond(x: Tensor, flag: Tensor) -> Any:
    return torch.cond(flag, lambda y: y.sin(), lambda y: y.cos(), (x,))


@cases(lambda: (leaf(3), flag()), "dynamo", "dynamic", "inductor")
def cond_with_gradient(x: Tensor, flag: Tensor) -> Any:
    return torch.cond(flag, lambda y: y.sin(), lambda y: y.cos(), (x,))


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic")
def cond_on_the_values(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,)) * x


@cases(lambda: (plain(3), flag()), "dynamo")
def cond_writes_to_an_intermediate(x: Tensor, flag: Tensor) -> Any:
    return torch.cond(flag, lambda y: y.sin().add_(1), lambda y: y.clone().mul_(2), (x,))


@cases(lambda: (leaf(3), leaf(3), flag()), "dynamo", "dynamic")
def cond_reads_from_outside(x: Tensor, w: Tensor, flag: Tensor) -> Any:
    h = w * 2
    return torch.cond(flag, lambda y: y * h, lambda y: y + w, (x,)) + h


@cases(lambda: (leaf(3), leaf(3), flag()), "dynamo")
def cond_with_several_results(x: Tensor, y: Tensor, flag: Tensor) -> Any:
    a, b = torch.cond(flag, lambda x, y: (x * y, x.sin()), lambda x, y: (x + y, y.cos()), (x, y))
    return a * b


@cases(lambda: (leaf(3), flag(), flag()), "dynamo")
def cond_within_cond(x: Tensor, first: Tensor, second: Tensor) -> Any:
    def inner(y: Tensor) -> Any:
        return torch.cond(second, lambda z: z.exp(), lambda z: z.sigmoid(), (y,))

    return torch.cond(first, inner, lambda y: y * 3, (x,))


@cases(lambda: (leaf(3), flag()), "dynamo")
def cond_with_detached_branch(x: Tensor, flag: Tensor) -> Any:
    return torch.cond(flag, lambda y: y.detach() * y, lambda y: y * 2, (x,))


@cases(lambda: (plain(3), flag()), "dynamo")
def cond_whose_input_was_written_to(x: Tensor, flag: Tensor) -> Any:
    x.mul_(2)
    return torch.cond(flag, lambda y: y.sin(), lambda y: y.cos(), (x,))


@cases(lambda: (plain(3), flag()), "dynamo", "dynamic", "inductor", tolerated=COUNTED)
def cond_writes_to_an_operand(x: Tensor, flag: Tensor) -> Any:
    def add(y: Tensor) -> Tensor:
        y.add_(1)
        return y * 2

    with torch.no_grad():
        return torch.cond(flag, add, lambda y: y * 3, (x,))


class Choice(nn.Module):
    """Branches that read the module's parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, self.first, self.second, (x,))


cases(lambda: (leaf(3, Fixed(4)),), "dynamo")(Choice)


@cases(lambda: (torch.randint(1, 5, ()), plain(3)), "dynamo", "dynamic", "inductor")
def loop(count: Tensor, x: Tensor) -> Any:
    return while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, y.cos()), (count, x))


@cases(
    lambda: (torch.randint(1, 5, ()), leaf(3)),
    "dynamo",
    "inductor",
    tolerated=WRITABLE,
)
def loop_with_gradient(count: Tensor, x: Tensor) -> Any:
    return while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, y.cos()), (count, x))


@cases(lambda: (torch.randint(1, 5, ()), plain(3), plain(3)), "dynamo")
def loop_reads_from_outside(count: Tensor, x: Tensor, w: Tensor) -> Any:
    return while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, y * w), (count, x))


@cases(lambda: (leaf(4, 3), leaf(3)), "dynamo", "dynamic", "inductor", tolerated=WRITABLE)
def mapped(xs: Tensor, w: Tensor) -> Any:
    return hop_map(lambda x, w: x.sin() * w, xs, w)  # type: ignore[arg-type]  # torch declares it wrongly


@cases(lambda: (leaf(4, 3), leaf(3)), "dynamo", tolerated=WRITABLE)
def mapped_reads_from_outside(xs: Tensor, w: Tensor) -> Any:
    return hop_map(lambda x: (x.sin() * w, x + w), xs)  # type: ignore[arg-type, misc]  # likewise


@cases(lambda: (leaf(3), leaf(5, 3)), "dynamo", "dynamic", "inductor")
def scanned(init: Tensor, xs: Tensor) -> Any:
    return scan(lambda carry, x: (carry + x, carry * x), init, xs)


@cases(lambda: (plain(3), plain(5, 3)), "dynamo")
def scanned_backwards(init: Tensor, xs: Tensor) -> Any:
    return scan(lambda carry, x: (carry + x, carry * x), init, xs, reverse=True)


@cases(lambda: (leaf(3), leaf(5, 3), leaf(3)), "dynamo")
def scan_reads_from_outside(init: Tensor, xs: Tensor, w: Tensor) -> Any:
    return scan(lambda carry, x: (carry * w + x, carry.sin()), init, xs)


# From torch 2.14 on, eager's result is a view made inside a custom function of torch's.
@cases(lambda: (leaf(5, 3),), "dynamo", "dynamic", "inductor", tolerated=WRITABLE)
def associatively_scanned(xs: Tensor) -> Any:
    return associative_scan(lambda a, b: a * b, xs, 0, combine_mode="pointwise")


@cases(lambda: (leaf(5, 3),), "dynamo")
def associatively_scanned_generic(xs: Tensor) -> Any:
    return associative_scan(lambda a, b: a @ torch.ones(3, 3) + b, xs, 0, combine_mode="generic")


@mark_compile_region
def region(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin()


@cases(lambda: (leaf(3, 3), leaf(3, 3)), "dynamo", "dynamic", "inductor")
def marked_region(x: Tensor, w: Tensor) -> Tensor:
    return region(region(x, w), w) * 2


@cases(lambda: (leaf(3, 3),), "dynamo")
def autograd_function(x: Tensor) -> Any:
    return DoubledGradient.apply(x.sin()) * 2


class DoubledGradient(torch.autograd.Function):
    """A gradient that is not the derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 6 * x * x


@cases(lambda: (leaf(3), flag()), "dynamo")
def autograd_function_in_cond(x: Tensor, flag: Tensor) -> Any:
    return torch.cond(flag, lambda y: DoubledGradient.apply(y) * 1, lambda y: y * 2, (x,))


@cases(lambda: (leaf(3, 3), leaf(3, 3)), "dynamo", "inductor")
def no_grad_and_autocast_regions(x: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
    with torch.autocast("cpu", torch.bfloat16):
        z = x @ w
    return z.float() + y


def heads() -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value."""
    query, key, value = (torch.randn(1, 2, 16, 8) for _ in range(3))
    return query, key, value


@cases(heads, "dynamo")
def flexible_attention(query: Tensor, key: Tensor, value: Tensor) -> Any:
    return flex_attention(query, key, value, score_mod=lambda score, b, h, i, j: score + (i - j))


@cases(lambda: (*heads(), plain(2)), "dynamo")
def flexible_attention_with_a_bias(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Any:
    return flex_attention(query, key, value, score_mod=lambda score, b, h, i, j: score * bias[h])


@cases(lambda: (leaf(3), leaf(3), flag()), "dynamic")
def autograd_function_in_cond_on_an_outside_tensor(x: Tensor, w: Tensor, flag: Tensor) -> Any:
    h = w * 2
    return torch.cond(flag, lambda y: DoubledGradient.apply(h) * y, lambda y: y * 2, (x,))


@cases(lambda: (plain(3),), "dynamo", "dynamic", "inductor")
def loop_over_a_number(x: Tensor) -> Any:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (0, x))


@cases(lambda: (plain(5),), context=torch.inference_mode)
def loop_over_a_number_that_is_an_index(x: Tensor) -> Any:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + x[i].abs()), (0, x.abs()))[1]


def dropped(x: Tensor) -> Tensor:
    return nn.functional.dropout(x)


@cases(lambda: (leaf(6, 4), flag()), "dynamo", "dynamic", "inductor", unsupported="random-op-in-backward")
def cond_with_dropout(x: Tensor, flag: Tensor) -> Any:
    return torch.cond(flag, dropped, lambda y: y * torch.rand_like(y), (x,))


@cases(lambda: (leaf(6, 4), flag(), flag()), "dynamo", unsupported="random-op-in-backward")
def cond_within_cond_with_dropout(x: Tensor, first: Tensor, second: Tensor) -> Any:
    def inner(y: Tensor) -> Any:
        return torch.cond(second, dropped, lambda z: z * torch.rand(4), (y,))

    return torch.cond(first, inner, lambda y: y * 3, (x,))


@cases(lambda: (leaf(6, 4),), "dynamo", "dynamic", unsupported="random-op-in-backward")
def mapped_with_dropout(xs: Tensor) -> Any:
    return hop_map(dropped, xs)  # type: ignore[arg-type]  # torch declares it wrongly


@cases(
    lambda: (torch.randint(1, 5, ()), leaf(6, 4)), "dynamo", "dynamic", unsupported="random-op-in-backward"
)
def loop_with_dropout(count: Tensor, x: Tensor) -> Any:
    return while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, nn.functional.dropout(y)), (count, x))


@cases(lambda: (leaf(6, 4), flag()), unsupported="random-op-in-backward")
def cond_with_dropout_and_a_print(x: Tensor, flag: Tensor) -> Any:
    def announced(y: Tensor) -> Tensor:
        torch._higher_order_ops.print("dropped")
        return dropped(y)

    return torch.cond(flag, announced, lambda y: y * 2, (x,))


class Counting(nn.Module):
    """A branch writes to a buffer."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        def seen(y: Tensor) -> Tensor:
            self.count.add_(1)
            return y * self.count

        return torch.cond(x.sum().abs() >= 0, seen, lambda y: y * 2, (self.linear(x),))


cases(lambda: (plain(2, 3),), "dynamo", "inductor", context=torch.no_grad)(Counting)


@cases(lambda: (plain(4, 3), flag()), "dynamo", context=torch.no_grad, tolerated=COUNTED)
def cond_writes_through_a_view_in_one_branch(x: Tensor, flag: Tensor) -> Any:
    def filled(y: Tensor) -> Tensor:
        y[1:].t().mul_(3)
        return y * 2

    return torch.cond(~flag, filled, lambda y: y.clone(), (x[1:],)), x * 2


@cases(lambda: (plain(3), torch.zeros(())), "dynamo", "inductor", context=torch.inference_mode)
def loop_that_writes_outside(x: Tensor, total: Tensor) -> Any:
    def step(i: Tensor, y: Tensor) -> Any:
        total.add_(y.sum())
        return i + 1, y * total

    return while_loop(lambda i, y: (i < 3) & (total < 100), step, (torch.tensor(0), x))


@cases(lambda: (plain(4, 3), flag()), context=torch.no_grad, later="operands that share memory")
def cond_writes_to_one_of_two_operands_on_one_storage(x: Tensor, flag: Tensor) -> Any:
    def filled(y: Tensor, z: Tensor) -> Tensor:
        y.mul_(3)
        return z * 2

    return torch.cond(flag, filled, lambda y, z: z * 1, (x[1:], x[:2]))


class Gated(nn.Module):
    """Branches with a custom function of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor, flag: Tensor) -> Any:
        def scaled(y: Tensor) -> Tensor:
            return DoubledGradient.apply(self.weight * 2) * DoubledGradient.apply(self.weight) * y

        return torch.cond(flag, scaled, lambda y: y * self.weight, (x,))


cases(lambda: (leaf(3), flag()))(Gated)


@cases(lambda: (leaf(3, 4), leaf(4)), "dynamic", "dynamo")
def derivative_in_a_branch(x: Tensor, w: Tensor) -> Tensor:
    def weighted(y: Tensor) -> Tensor:
        return (y * w).sin().sum()

    return torch.cond(x.sum() > 0, torch.func.grad(weighted), lambda x: x + w, (x,))


@cases(lambda: (plain(3, 4), plain(4)), "dynamic", "dynamo")
def vectorised_in_a_step(x: Tensor, w: Tensor) -> Tensor:
    def scaled(one: Tensor) -> Tensor:
        return one.sin() * w.sum()

    row: Any = torch.func.vmap(scaled)
    return hop_map(row, x)


@cases(lambda: (plain(3, 4), plain(4)), unsupported="subgraph-uses-outer-tensor")
def vectorised_over_a_tensor_from_outside(x: Tensor, w: Tensor) -> Tensor:
    row: Any = torch.func.vmap(torch.mul)
    step: Any = lambda given: row(given, w)
    return hop_map(step, x)


@cases(lambda: (plain(3, 4), plain(5)), "dynamic", "inductor")
def branches_with_a_number_of_data(x: Tensor, w: Tensor) -> Tensor:
    first, last = w.argmax().item(), w.argmin().item()
    return torch.cond(x.sum() > 0, lambda x: x * first, lambda x: x + last, (x,))


@cases(lambda: (plain(3, 4), plain(5)), "dynamic", "inductor")
def branch_with_a_floating_number_of_data(x: Tensor, w: Tensor) -> Tensor:
    total = w.sum().item()
    return torch.cond(x.sum() > 0, lambda x: x * total, lambda x: x - 1, (x,))


@cases(lambda: (plain(3, 4), plain(5)), "dynamic")
def loop_to_a_number_of_data(x: Tensor, w: Tensor) -> Tensor:
    end = w.argmax().item()
    return while_loop(lambda at, y: at < end, lambda at, y: (at + 1, y * 2), (torch.tensor(0), x))[1]


@cases(lambda: (leaf(3, 4), plain(5)), unsupported="outer-number-in-subgraph")
def branch_with_a_number_and_a_gradient(x: Tensor, w: Tensor) -> Tensor:
    first = w.argmax().item()
    return torch.cond(x.sum() > 0, lambda x: x * first, lambda x: x + 1, (x,))
