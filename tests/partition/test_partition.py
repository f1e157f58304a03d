"""What the partition saves: nothing that the caller may still change, nothing drawn twice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

POLICIES = ("min-cut", "default")
POLICY = pytest.mark.parametrize("policy", POLICIES)


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def compiled(function: Callable[..., Any], *args: Tensor, policy: str = "min-cut") -> Any:
    return compile_direct(function, args, {}, CompileOptions(backend="eager", policy=policy))


@POLICY
def test_a_result_may_be_changed_before_the_backward_where_eager_allows_it(policy: str) -> None:
    def shifted(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        return y, y.exp().sum()

    def use(function: Callable[..., Any]) -> Tensor:
        x = leaf(3)
        y, total = function(x)
        y.mul_(5)
        total.backward()
        assert x.grad is not None
        return x.grad

    assert torch.equal(use(compiled(shifted, leaf(3), policy=policy).call), use(shifted))


@POLICY
def test_a_result_that_eager_saves_costs_nothing(policy: str) -> None:
    found = compiled(lambda x: x.exp(), leaf(3), policy=policy)
    assert [(value.is_output, value.size_bytes) for value in found.parts.saved] == [(True, 0)]


@POLICY
def test_dropout_has_one_mask(policy: str) -> None:
    x = leaf(1000)
    call = compiled(lambda x: functional.dropout(x.sin(), 0.5).cos(), x, policy=policy).call
    torch.manual_seed(0)
    (found,) = torch.autograd.grad(call(x).sum(), x)
    torch.manual_seed(0)
    (expected,) = torch.autograd.grad(functional.dropout(x.sin(), 0.5).cos().sum(), x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_dropout_mask_is_kept_as_booleans_and_is_eagers_to_the_bit(dtype: torch.dtype) -> None:
    x = torch.randn(50, 40).to(dtype).requires_grad_()

    def dropped(x: Tensor) -> Tensor:
        return functional.dropout(x, 0.1) * 2

    found = compiled(dropped, x)
    assert [(value.node.val.dtype, value.size_bytes) for value in found.parts.saved] == [(torch.bool, 2000)]
    torch.manual_seed(0)
    result = found.call(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    torch.manual_seed(0)
    expected = dropped(x)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), x)
    assert torch.equal(result, expected)
    assert torch.equal(gradient, expected_gradient)


def test_a_mask_drawn_inside_a_checkpoint_is_kept_as_booleans() -> None:
    def block(x: Tensor) -> Tensor:
        return functional.dropout(x.sin(), 0.1).cos()

    found = compiled(lambda x: checkpoint(block, x, use_reentrant=False), leaf(50, 40))
    saved = [value for value in found.parts.saved if value.size_bytes]
    assert [(value.node.val.dtype, value.size_bytes) for value in saved] == [(torch.bool, 2000)]


def test_linear_gelu_linear_saves_what_the_shapes_say() -> None:
    """Kept beyond the arguments: the first product, f32[8, 32], from which gelu and its gradient follow."""

    def mlp(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return functional.linear(functional.gelu(functional.linear(x, a)), b)

    x, a, b = leaf(8, 16), leaf(32, 16), leaf(16, 32)
    assert compiled(mlp, x, a, b).parts.saved_bytes == 8 * 32 * 4
    assert compiled(mlp, x, a, b, policy="default").parts.saved_bytes == 2 * 8 * 32 * 4


def test_views_of_one_storage_are_one_cost() -> None:
    def halves(x: Tensor) -> Tensor:
        left, right = (x @ x).chunk(2, 1)
        return (left.sin() * right.sin()).sum()

    assert compiled(halves, leaf(4, 4)).parts.saved_bytes == 4 * 4 * 4
    assert compiled(halves, leaf(4, 4), policy="default").parts.saved_bytes >= 4 * 4 * 4


def test_a_recomputed_value_names_its_twin_and_reason() -> None:
    recomputed = compiled(lambda x: (x @ x).sin().cos().sum(), leaf(4, 4)).parts.recomputed
    assert [(value.node.target, value.reason.text) for value in recomputed] == [
        ("aten.sin.default", "cheaper to recompute than to save")
    ]
