"""Possible savings in saved values: masks, precisions, values that no gradient depends on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aotlens.diagnostics.diagnose import diagnose
from aotlens.diagnostics.findings import Limits
from aotlens.model import Target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

LOW = Limits(saving_bytes=1, saving_share=0)


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def target_of(function: Callable[..., Any], *args: Tensor, policy: str = "min-cut", **more: Any) -> Target:
    options = CompileOptions(backend="eager", policy=policy, **more)
    return compile_direct(function, args, {}, options).target()


def savings(target: Target) -> list[tuple[str, int]]:
    assert target.partition is not None
    return [(value.saving.kind, value.saving.bytes) for value in target.partition.saved if value.saving]


def told(target: Target) -> list[tuple[str, str]]:
    codes = ("AL302", "AL303", "AL304")
    return [(entry.code, entry.message) for entry in diagnose(target, LOW) if entry.code in codes]


def drawn_as_integers(x: Tensor) -> Tensor:
    mask = torch.randint(0, 2, x.shape).float()
    return x.exp() * mask


def test_a_mask_in_numbers_is_told_with_what_booleans_would_take() -> None:
    assert told(target_of(drawn_as_integers, leaf(64, 64))) == [
        (
            "AL303",
            (
                "`mask` is saved for the backward as f32[64, 64], 16.0 KiB: its only values are 0 and 1,"
                " so a boolean mask with one byte per element is enough; 12.0 KiB could be freed"
            ),
        )
    ]


@pytest.mark.parametrize(
    "mask",
    [
        lambda x: (x > 0).float(),
        lambda x: (x > 0).float() / 0.9,
        lambda x: 1 - (x > 0).to(x.dtype) * (x < 1),
        lambda x: torch.where(x > 0, 0.0, -1e9),
        lambda x: torch.ones_like(x).tril(),
        lambda x: functional.one_hot(torch.arange(64), 64).float(),
        lambda x: (x != 0).double(),
    ],
)
def test_masks_under_the_policy_that_keeps_what_eager_keeps(mask: Callable[[Tensor], Tensor]) -> None:
    found = savings(target_of(lambda x: (x.exp() * mask(x)).sum(), leaf(64, 64), policy="default"))
    assert [kind for kind, _ in found] == ["mask"]


def test_idiomatic_code_has_no_saving() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1)
            )
            self.head = nn.Linear(8 * 3 * 3, 10)
            self.norm = nn.LayerNorm(10)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(self.norm(self.head(self.body(x).flatten(1))), y)

    found = target_of(Net(), torch.randn(4, 3, 8, 8), torch.tensor([1, 2, 3, 4]))
    assert savings(found) == []


def test_sign_and_clamp_are_no_masks() -> None:
    found = target_of(lambda x: x.exp() * x.sign() * x.clamp(0, 1), leaf(64, 64), policy="default")
    assert savings(found) == []


def wide_scale(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return ((x @ weight) * scale).sigmoid().sum()


def test_a_small_wide_argument_that_widens_all_is_told_at_the_operation_that_does() -> None:
    target = target_of(wide_scale, leaf(64, 64), leaf(64, 64), torch.randn(64), policy="default")
    assert ("precision", 8192) in savings(target)
    found = [entry for entry in diagnose(target, LOW) if entry.code == "AL302"]
    assert [entry.related[0].message for entry in found] == ["the cause is here"]
    assert "computed from bf16 and converted to f32 together with a value of dtype f32" in found[0].message


def test_float64_that_comes_in_by_a_constant() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * torch.ones(64, dtype=torch.float64)).exp().sin().sum()

    assert savings(target_of(function, leaf(64, 64))) == [("precision", 16384)]


@pytest.mark.rotates
def test_long_chains() -> None:
    def function(x: Tensor) -> Tensor:
        x = x * torch.ones(8, dtype=torch.float64)
        for _ in range(1200):
            x = x.sin()
        return x.sum()

    assert savings(target_of(function, leaf(8, 8), policy="default")) == [("precision", 256)] * 1200


def test_float64_that_was_asked_for_is_not_told() -> None:
    found = target_of(lambda x: x.exp().sin().sum(), torch.randn(64, 64).double().requires_grad_())
    assert savings(found) == []


def test_autocast_with_a_fused_attention_has_no_saving() -> None:
    def function(q: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return functional.scaled_dot_product_attention(q, q, q).float().sum()

    assert savings(target_of(function, leaf(1, 2, 16, 8))) == []


class AsksForSizes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.exp())
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2 + torch.zeros_like(ctx.saved_tensors[0])


class TimesZero(AsksForSizes):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2 + 0 * ctx.saved_tensors[0]


def test_a_value_that_is_asked_for_its_sizes_is_not_kept() -> None:
    target = target_of(lambda x: AsksForSizes.apply(x).sum(), leaf(8, 8))
    assert target.partition is not None
    assert target.partition.saved_bytes == 0


def test_a_value_times_zero_is_dead() -> None:
    found = told(target_of(lambda x: TimesZero.apply(x).sum(), leaf(8, 8)))
    assert [code for code, _ in found] == ["AL304"]
    assert "it is always 0" in found[0][1]


@pytest.mark.parametrize("policy", ["min-cut", "default"])
@pytest.mark.parametrize(
    "pool",
    [
        lambda x: functional.avg_pool2d(x, 2),
        lambda x: functional.adaptive_avg_pool2d(x, 3),
        lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
        lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"),
    ],
)
def test_what_is_pooled_or_padded_is_not_kept(pool: Callable[[Tensor], Tensor], policy: str) -> None:
    x, weight = leaf(2, 3, 8, 8).to(memory_format=torch.channels_last).detach(), leaf(4, 3, 3, 3)

    def function(x: Tensor, weight: Tensor) -> Tensor:
        return pool(functional.conv2d(x, weight)).sum()

    compiled = compile_direct(function, (x, weight), {}, CompileOptions(backend="eager", policy=policy))
    assert compiled.parts.saved_bytes == 0
    found = torch.autograd.grad(compiled.call(x, weight), weight)
    torch.testing.assert_close(found, torch.autograd.grad(function(x, weight), weight))


def test_indices_are_all_that_max_pooling_keeps() -> None:
    compiled = compile_direct(
        lambda x, weight: functional.max_pool2d(functional.conv2d(x, weight), 2).sum(),
        (leaf(2, 3, 8, 8), leaf(4, 3, 3, 3)),
        {},
        CompileOptions(backend="eager"),
    )
    assert compiled.parts.saved_bytes == 2 * 4 * 3 * 3 * 8


def checked(function: Callable[..., Any], *args: Tensor) -> Target:
    compiled = compile_direct(function, args, {}, CompileOptions(backend="eager"))
    return compiled.target(dead_values=True)


class MasksItAway(AsksForSizes):
    """A difference of equal values, which no structure shows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x @ x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * 2 + (grad * y - grad * y)


def test_numbers_find_what_structure_does_not() -> None:
    found = checked(lambda x: MasksItAway.apply(x * 1.5).sin().sum(), leaf(8, 8))
    assert [(code, "no gradient changed when it was replaced" in text) for code, text in told(found)] == [
        ("AL304", True)
    ]
    assert found.partition is not None
    assert found.partition.dead_values is not None
    assert found.partition.dead_values.endswith("1 changed no gradient")


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.words = nn.Embedding(11, 16)
        self.head = nn.Linear(16, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.cross_entropy(
            self.head(self.layer(self.words(tokens))).flatten(0, 1), tokens.flatten()
        )


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1), nn.Hardswish()
        )

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x).clamp(-1, 1) ** 2).mean()


@pytest.mark.parametrize(
    ("model", "given"),
    [(Transformer, torch.ones(2, 5, dtype=torch.long)), (Convolutions, torch.randn(4, 3, 8, 8))],
)
def test_numbers_raise_no_false_alarm(model: type[nn.Module], given: Tensor) -> None:
    found = checked(model(), given)
    assert savings(found) == []
    assert found.partition is not None
    assert found.partition.dead_values is not None
    assert found.partition.dead_values.endswith("3 times each: none changed no gradient")


def test_what_cannot_run_on_made_up_numbers_says_so() -> None:
    target = compile_direct(
        lambda x: x.exp().sum(), (leaf(4),), {}, CompileOptions(backend="eager", dynamic=True)
    ).target(dead_values=True)
    assert target.partition is not None
    assert target.partition.dead_values == (
        "dead values were not searched for: `x` is not a tensor of known sizes"
    )
