"""Operators of the user's own: written arguments, gradients, lists, views."""

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain

cases = Cases("custom_operators")


@torch.library.custom_op("aotlens_test::accumulate", mutates_args={"total"})
def accumulate(total: Tensor, x: Tensor, scale: float = 2.0) -> None:
    total.add_(x * scale)


@torch.library.custom_op("aotlens_test::accumulate_and_count", mutates_args={"total"})
def accumulate_and_count(x: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    total.add_(x)
    return x * 3, (x > 0).sum()


@torch.library.custom_op("aotlens_test::exchange", mutates_args={"left", "right"})
def exchange(left: Tensor, right: Tensor, step: Tensor) -> Tensor:
    left.add_(step)
    right.mul_(2)
    left.sub_(1)
    return right.sum()


@exchange.register_fake
def _(left: Tensor, right: Tensor, step: Tensor) -> Tensor:
    return step.new_empty(())


@accumulate_and_count.register_fake
def _(x: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((), dtype=torch.int64)


@torch.library.custom_op("aotlens_test::advance", mutates_args={"states"})
def advance(states: list[Tensor], step: Tensor) -> None:
    for state in states:
        state.add_(step)


@torch.library.custom_op("aotlens_test::fill_maybe", mutates_args={"out", "count"})
def fill_maybe(x: Tensor, out: Tensor | None, count: Tensor) -> Tensor:
    if out is not None:
        out.copy_(x)
    count.add_(1)
    return x * 2


@fill_maybe.register_fake
def _(x: Tensor, out: Tensor | None, count: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("aotlens_test::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x**3


@cube.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _differentiate(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
    return cube_gradient(x, gradient)


@torch.library.custom_op("aotlens_test::cube_gradient", mutates_args=())
def cube_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    return gradient * 3 * x * x


@cube_gradient.register_fake
def _(x: Tensor, gradient: Tensor) -> Tensor:
    return torch.empty_like(x)


cube.register_autograd(_differentiate, setup_context=_keep)

library = torch.library.Library("aotlens_test", "FRAGMENT")
library.define("double_(Tensor(a!) x) -> Tensor(a!)")
library.impl("double_", lambda x: x.mul_(2), "CompositeExplicitAutograd")
library.define("touch(Tensor(a!) x) -> Tensor(a!)")
library.impl("touch", lambda x: x.mul_(2), "CompositeExplicitAutograd")


@cases(lambda: (plain(3, 4), plain(3, 4)), "dynamo", "dynamic", "inductor")
def writes_to_an_input(total: Tensor, x: Tensor) -> Tensor:
    accumulate(total, x)
    return total * 2


@cases(lambda: (plain(3, 4), leaf(3, 4)), "dynamo", "inductor")
def writes_to_an_intermediate(total: Tensor, x: Tensor) -> Tensor:
    fresh = total + 1
    accumulate(fresh, x.detach(), 3.0)
    return fresh * x


@cases(lambda: (plain(3, 4), plain(3, 4)), "dynamo")
def writes_beside_results(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return accumulate_and_count(x, total=total)


@cases(lambda: (plain(3, 4), plain(4)), "dynamo", "inductor")
def writes_to_a_view_of_an_input(total: Tensor, x: Tensor) -> Tensor:
    accumulate(total[1], x)
    return total.sum()


@cases(lambda: (plain(3), plain(3), plain(3)), "dynamo", "inductor")
def writes_to_a_list(first: Tensor, second: Tensor, step: Tensor) -> Tensor:
    advance([first, second], step)
    advance([first], step)
    return first + second


@cases(lambda: (plain(3), plain(3), plain(1)), "dynamo")
def writes_to_an_optional(x: Tensor, out: Tensor, count: Tensor) -> Tensor:
    return fill_maybe(x, out, count) + fill_maybe(x, None, count)


@cases(lambda: (plain(3, 4),), "dynamo", "dynamic", "inductor")
def writes_beside_an_alias(total: Tensor) -> Tensor:
    accumulate(total[0], total[1])
    return total * 2


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic", "inductor")
def writes_beside_an_alias_of_an_intermediate(x: Tensor) -> Tensor:
    total = (x * 2).detach()
    accumulate(total[0], total[1])
    return total * x


@cases(lambda: (plain(3, 4), plain(4)), "dynamo", "dynamic", "inductor")
def writes_to_two_parts(total: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    found = exchange(total[0], total[1], step)
    return total * 2, found


@cases(lambda: (plain(3, 4), plain(4)), unsupported="overlapping-arguments")
def writes_twice_to_the_same(total: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    found = exchange(total[0], total[0], step)
    return total * 2, found


@cases(lambda: (plain(6), plain(4)), unsupported="overlapping-arguments")
def writes_to_parts_that_overlap(x: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    total = x + 1
    found = exchange(total[:4], total[2:], step)
    return total * 2, found


@cases(lambda: (plain(4, 4), plain(4)), unsupported="overlapping-arguments")
def writes_to_a_row_and_a_column(total: Tensor, step: Tensor) -> Tensor:
    advance([total.t()[0], total[0], total[2]], step)
    return total + 1


def _overlapping() -> tuple[Tensor, Tensor, Tensor]:
    under = plain(6)
    return under[:4], under[2:], plain(4)


@cases(_overlapping, unsupported="overlapping-arguments")
def writes_to_arguments_that_overlap(left: Tensor, right: Tensor, step: Tensor) -> Tensor:
    return exchange(left, right, step) + left


@cases(lambda: (*[plain(4)] * 2, plain(4)), unsupported="overlapping-arguments")
def writes_to_an_argument_given_twice(left: Tensor, right: Tensor, step: Tensor) -> Tensor:
    return exchange(left, right, step) + left


@cases(lambda: (plain(3, 4),), unsupported="overlapping-arguments")
def reads_what_it_writes(total: Tensor) -> Tensor:
    accumulate(total[1:], total[:2])
    return total * 2


@cases(lambda: (plain(3, 4),), "dynamo")
def writes_and_reads_the_same(total: Tensor) -> Tensor:
    accumulate(total.detach(), total.clone())
    return total * 2


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic", "inductor")
def own_gradient(x: Tensor) -> Tensor:
    return cube(x.sin()) * 2


@cases(lambda: (plain(3, 4),), unsupported="operator-mutation")
def in_place_by_name(x: Tensor) -> Tensor:
    return torch.ops.aotlens_test.double_(x) + 1


@cases(lambda: (plain(3, 4),), unsupported="operator-mutation")
def result_aliases_an_argument(x: Tensor) -> Tensor:
    return torch.ops.aotlens_test.touch(x) + 1
