"""Values and sizes that are not known while the function is captured."""

import functools
from typing import Any

import torch
from torch import Tensor, nn

import aotlens
from aotlens import CompileOptions
from tests.unsupported.example import DYNAMIC, EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


@shows("numpy-values")
def values_in_numpy() -> None:
    @aotlens.compile(options=EAGER)
    def through_numpy(x: Tensor) -> Tensor:
        return x * float(x.numpy().sum())

    through_numpy(torch.ones(5))


@shows("symbolic-size-as-key")
def size_in_a_cache() -> None:
    @functools.lru_cache
    def halved(size: int) -> int:
        return size // 2

    @aotlens.compile(options=DYNAMIC)
    def scale(x: Tensor) -> Tensor:
        return x * halved(x.shape[0])

    scale(torch.ones(5))


@shows("symbolic-exponent")
def size_as_an_exponent() -> None:
    @aotlens.compile(options=DYNAMIC)
    def power(x: Tensor) -> Tensor:
        return x ** x.shape[0]

    power(torch.ones(5, requires_grad=True))


@shows("in-place-resize")
def resized_under_symbolic_sizes() -> None:
    @aotlens.compile(options=DYNAMIC)
    def first_two(x: Tensor) -> Tensor:
        doubled = x * 2
        return doubled.resize_(2)

    first_two(torch.ones(4))


@shows("scan-over-symbolic-size")
def loop_that_reads_a_symbolic_size() -> None:
    from torch._higher_order_ops.scan import scan

    @aotlens.compile(options=DYNAMIC)
    def running_sums(x: Tensor) -> Tensor:
        return scan(lambda total, row: (total + row * row.shape[0], total * row), torch.zeros_like(x[0]), x)[
            1
        ]

    running_sums(torch.ones(3, 4, requires_grad=True))


@shows("data-dependent-control-flow")
def positions_written_to_a_tensor() -> None:
    @aotlens.compile(options=EAGER)
    def positions(x: Tensor) -> Tensor:
        indices = torch.empty(0, dtype=torch.int64)
        torch.nonzero(x, out=indices)
        return indices

    positions(torch.ones(3))


@shows("unknown-size")
def ragged_size_as_a_number() -> None:
    @aotlens.compile(options=EAGER)
    def scale(x: Tensor, rows: Tensor) -> Tensor:
        return x * rows.shape[1]

    rows = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    scale(torch.ones(3), rows)


@shows("size-expression")
def size_with_bits_set() -> None:
    @aotlens.compile(options=CompileOptions(backend="inductor", dynamic=True))
    def scale(x: Tensor) -> Tensor:
        return x * (x.shape[0] | 3)

    scale(torch.ones(5))


class SlopeBySize(torch.autograd.Function):
    """The backward of `ScaledBySize`, whose own backward depends on the size."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * (2 if gradient.shape[0] > 3 else 3)


class ScaledBySize(torch.autograd.Function):
    """Its second derivative compares a size with a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return SlopeBySize.apply(gradient) * x


@shows("derivative-specialises")
def second_derivative_by_size() -> None:
    # `ScaledBySize` is a custom function whose second derivative compares a size with a number
    @aotlens.compile(options=DYNAMIC)
    def scale(x: Tensor) -> Tensor:
        return ScaledBySize.apply(x)

    x = torch.ones(5, requires_grad=True)
    (gradient,) = torch.autograd.grad(scale(x).sum(), x, create_graph=True)
    gradient.sum().backward()


class PairBySize(torch.autograd.Function):
    """Its backward compares a size with a number where the second tangent is None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        if second is None:
            return first * (2 if first.shape[0] > 3 else 4)
        return second * 3 if first is None else first * 2 + second * 3


@shows("partial-backward-specialises")
def backward_of_one_result_by_size() -> None:
    # `PairBySize` is a custom function; its backward compares a size where one tangent is None
    @aotlens.compile(options=DYNAMIC)
    def pair(x: Tensor) -> tuple[Tensor, Tensor]:
        return PairBySize.apply(x)

    first, _ = pair(torch.ones(5, requires_grad=True))
    first.sum().backward()


@shows("write-on-data-dependent-storage")
def parts_of_unknown_sizes() -> None:
    @torch.compile(backend="aotlens", fullgraph=True, options={"backend": "eager", "strict": True})
    def scale(first: Tensor, second: Tensor) -> Tensor:
        first.mul_(2)
        return second * 2

    whole = torch.ones(8)
    first, second = whole[:4].detach(), whole[4:].detach()
    torch._dynamo.decorators.mark_unbacked(first, 0)
    torch._dynamo.decorators.mark_unbacked(second, 0)
    scale(first, second)


@shows("ragged-and-symbolic-sizes")
def export_of_a_fake_jagged_tensor() -> None:
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    rows = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(rows)
    aotlens.export(lambda x: x * 2, fake, options=EAGER)


@shows("data-dependent-index")
def index_with_torch_functions_disabled() -> None:
    @aotlens.compile(options=EAGER)
    def largest(x: Tensor) -> Tensor:
        index: Any = x.argmax().item()
        with torch._C.DisableTorchFunction():
            return x[index]

    largest(torch.ones(3))


@shows("data-dependent-output")
def comparison_of_tensors() -> None:
    @aotlens.compile(options=DYNAMIC)
    def double_unless_equal(x: Tensor, y: Tensor) -> Tensor:
        return x if torch.equal(x, y) else x * 2

    double_unless_equal(torch.ones(3), torch.ones(3))


@shows("operator-needs-static-sizes")
def images_enlarged_one_by_one() -> None:
    @aotlens.compile(options=DYNAMIC)
    def enlarge(rows: Tensor) -> Tensor:
        return torch.func.vmap(lambda row: nn.functional.interpolate(row[None, None], scale_factor=2))(rows)

    enlarge(torch.ones(3, 4))


@shows("vmap-needs-static-sizes")
def images_resized_one_by_one() -> None:
    @aotlens.compile(options=DYNAMIC)
    def enlarge(rows: Tensor) -> Tensor:
        size = 2 * rows.shape[1]
        return torch.func.vmap(lambda row: nn.functional.interpolate(row[None, None], size=size))(rows)

    enlarge(torch.ones(3, 4))
