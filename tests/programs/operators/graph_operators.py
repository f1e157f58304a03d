"""Higher-order operators that a graph can be given with, which torch itself puts there on other ways."""

from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.strict_mode import strict_mode

from tests.programs.program import Cases, leaf, plain

cases = Cases("graph_operators")


def small(*sizes: int) -> Tensor:
    """8-bit numbers, whose products need more bits."""
    return torch.randint(-100, 100, sizes, dtype=torch.int8)


@cases(lambda: (small(3, 4), small(4, 3)), "dynamo", "inductor")
def wide_matrix_product(x: Tensor, y: Tensor) -> Any:
    return out_dtype(torch.ops.aten.mm.default, torch.int32, x, y)


@cases(lambda: (small(3), small(3)), "dynamo", "inductor")
def wide_product(x: Tensor, y: Tensor) -> Any:
    return out_dtype(torch.ops.aten.mul.Tensor, torch.int32, x, y) + 1


@cases(lambda: (plain(3),), "dynamo", "inductor")
def strict(x: Tensor) -> Any:
    return strict_mode(lambda y: y.sin().add_(1) * 2, (x,)) + x


@cases(lambda: (plain(3), plain(3)), "dynamo", "inductor")
def strict_with_several_results(x: Tensor, w: Tensor) -> Any:
    a, b = strict_mode(lambda y: (y * w, y.cos()), (x,))
    return a * b


@cases(lambda: (plain(3), plain(3)), "dynamo", "inductor")
def hinted(x: Tensor, y: Tensor) -> Any:
    return hints_wrapper(lambda a, b: (a * b).sin(), (x, y), {}, hints={"precise": True}) * 2


@cases(lambda: (leaf(3),), "dynamo", "inductor")
def hinted_beside_a_gradient(x: Tensor) -> Any:
    return hints_wrapper(lambda a: a.sin(), (x.detach(),), {}, hints={"precise": True}) * x


@torch.library.custom_op("aotlens_given::fill", mutates_args={"x"})
def fill(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y * 2)
    return y + 1


@fill.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(y)


FILL = torch.ops.aotlens_given.fill.default


@cases(lambda: (plain(3), plain(3)), "dynamo", "inductor")
def functionalized(x: Tensor, y: Tensor) -> Any:
    result, written = auto_functionalized(FILL, x=x, y=y)
    return result * written, x


@cases(lambda: (plain(3), plain(3)), "dynamo", "inductor")
def functionalized_with_a_base(x: Tensor, y: Tensor) -> Any:
    result, written = auto_functionalized_v2(FILL, y=y, _x_base_index=0, _x_alias=True, _all_bases=[x])
    return result * written, x


@cases(lambda: (plain(6), plain(3)), "dynamo", "inductor")
def functionalized_with_a_view_of_a_base(x: Tensor, y: Tensor) -> Any:
    view = {"_x_size": (3,), "_x_stride": (2,), "_x_storage_offset": 1}
    result, written = auto_functionalized_v2(FILL, y=y, _x_base_index=0, **view, _all_bases=[x])
    return result, written
