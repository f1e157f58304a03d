"""Launches of Triton kernels: what they write becomes a value; a stand-in in Python runs them here."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import triton_kernel_wrap as wrap

from aotlens.compiled import Compiled
from aotlens.errors import UnsupportedError, UserError
from aotlens.frontends.compile import export
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct


class Doubling:
    """What torch asks of a `triton.JITFunction`; writes as one does, past autograd and version counters."""

    arg_names = ("x", "out", "n")
    configs: tuple[Any, ...] = ()

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        assert grid == (1, 1, 1)

        def run(x: Tensor, out: Tensor, n: int) -> None:
            out.data.copy_(x * 2 + n)

        return run


KERNEL = Doubling()


def double(x: Tensor, out: Tensor, n: int = 0) -> None:
    """As Dynamo writes `kernel[(1, 1, 1)](x, out, n)`."""
    wrap.triton_kernel_wrapper_mutation(
        kernel_idx=wrap.kernel_side_table.add_kernel(KERNEL),
        constant_args_idx=wrap.kernel_side_table.add_constant_args({}),
        grid=[(1, 1, 1)],
        tma_descriptor_metadata={},
        kwargs={"x": x, "out": out, "n": n},
    )


@pytest.fixture(autouse=True)
def known_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch reads the writes off the kernel's Triton code, which there is none of here."""
    monkeypatch.setattr("aotlens.torch_api.triton.get_mutated_tensors", lambda *_: ["out"])


def into_a_new_tensor(x: Tensor, out: Tensor) -> Any:
    fresh = torch.empty_like(x)
    double(x.detach().sin(), fresh, 3)
    return fresh.cos() * x


def into_an_argument(x: Tensor, out: Tensor) -> Any:
    double(x.detach(), out, 1)
    return out * x


def into_part_of_an_argument(x: Tensor, out: Tensor) -> Any:
    double(x.detach()[:2], out[1:3])
    double(out[1:3], out[:0].new_empty(2))
    return out + x


def into_a_value_with_a_gradient(x: Tensor, out: Tensor) -> Any:
    y = x * out
    double(out, y)
    return y


class Doubled(torch.autograd.Function):
    """Both ways through the kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        double(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        out = torch.empty_like(gradient)
        double(gradient, out)
        return out


def in_both_directions(x: Tensor, out: Tensor) -> Any:
    return Doubled.apply(x.sin()).exp() * out


def from_one_half_into_the_other(x: Tensor, out: Tensor) -> Tensor:
    double(out[:2], out[2:])
    return out * x


PROGRAMS = (
    from_one_half_into_the_other,
    into_a_new_tensor,
    into_an_argument,
    into_part_of_an_argument,
    into_a_value_with_a_gradient,
    in_both_directions,
)


def _given(seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(4, requires_grad=True), torch.randn(4)


def _compiled(function: Any, policy: str = "min-cut") -> Compiled:
    return compile_direct(function, _given(0), {}, CompileOptions(backend="eager", policy=policy))


@pytest.mark.parametrize("policy", ["min-cut", "default"])
@pytest.mark.parametrize("function", PROGRAMS)
def test_a_launch_does_what_it_does_in_eager(function: Any, policy: str) -> None:
    compiled = _compiled(function, policy)
    for seed in (1, 2):
        (x, out), (x_eager, out_eager) = _given(seed), _given(seed)
        found, expected = compiled.call(x, out), function(x_eager, out_eager)
        torch.testing.assert_close((found, out), (expected, out_eager))
        assert (x._version, out._version) == (x_eager._version, out_eager._version)
        gradients = [torch.autograd.grad(r.sum(), v)[0] for r, v in ((found, x), (expected, x_eager))]
        torch.testing.assert_close(*gradients)


def test_the_text_has_the_functional_operator_and_the_report_the_write() -> None:
    compiled = _compiled(into_an_argument)
    assert "tensors_to_clone=['out']" in compiled.source
    assert "grid=[(1, 1, 1)]" in compiled.source
    given = compiled.target().inputs[1]
    assert (given.mutation_type, given.hidden_from_autograd) == ("mutated_in_graph", True)
    assert given.sites[0].op == "triton_kernel_wrapper_mutation"
    assert [stage.name for stage in compiled.target().stages][:3] == ["captured", "desugared", "functional"]


def test_a_written_argument_that_overlaps_another_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="writes to `out`, which overlaps its argument `x` in memory"):
        _compiled(lambda x, out: double(out[:3], out[1:]))


def test_a_module_with_a_kernel_of_this_process_is_not_exported() -> None:
    with pytest.raises(UserError, match="a Triton kernel of your own"):
        export(into_an_argument, *_given(0))
