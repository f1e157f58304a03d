"""Attention is recorded as on the GPU that is pretended, and its operators run on the CPU."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from aotlens.codegen.gpu.attention import (
    AttentionCall,
    AttentionChoice,
    AttentionKernel,
    attentions_recorded,
    choose_attention_kernel,
)
from aotlens.codegen.gpu.interpreter import attention_steps
from aotlens.compiled import Compiled
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.gpu_emulation.attention import gpu_attention
from aotlens.gpu_emulation.contexts import emulating
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

HOPPER = (9, 0)


def asked(
    *sizes: int, dtype: torch.dtype = torch.bfloat16, keys: int | None = None, **more: Any
) -> AttentionCall:
    query = torch.zeros(*sizes, dtype=dtype)
    key = query if keys is None else torch.zeros(sizes[0], keys, *sizes[2:], dtype=dtype)
    given = {"mask": None, "dropout": 0.0, "is_causal": False, "enable_gqa": False} | more
    return AttentionCall(query, key, key, **given)


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("call", "capability", "kind", "why"),
    [
        (asked(2, 4, 8, 16), HOPPER, AttentionKernel.FLASH, ""),
        (asked(2, 4, 8, 16, dropout=0.5), HOPPER, AttentionKernel.FLASH, ""),
        (asked(2, 4, 8, 16, dtype=torch.float32), HOPPER, AttentionKernel.EFFICIENT, ""),
        (asked(2, 4, 8, 16, mask=torch.zeros(8, 8)), HOPPER, AttentionKernel.EFFICIENT, ""),
        (asked(2, 4, 8, 512), HOPPER, AttentionKernel.EFFICIENT, ""),
        (asked(2, 4, 8, 16), (7, 5), AttentionKernel.STEPS, "older than sm_80"),
        (asked(2, 4, 8, 16, keys=2, enable_gqa=True), HOPPER, AttentionKernel.FLASH, ""),
        (
            asked(2, 4, 8, 16, keys=2, enable_gqa=True, dtype=torch.float32),
            HOPPER,
            AttentionKernel.STEPS,
            "enable_gqa",
        ),
        (asked(2, 4, 8, 6, dtype=torch.float32), HOPPER, AttentionKernel.STEPS, "multiples of 4"),
        (asked(4, 8, 16), HOPPER, AttentionKernel.STEPS, "4 dimensions"),
    ],
)
def test_the_kernel_is_the_one_that_torch_takes(
    call: AttentionCall, capability: tuple[int, int], kind: AttentionKernel, why: str
) -> None:
    chosen = choose_attention_kernel(call, capability)
    assert chosen.kind is kind
    assert why in chosen.why


def test_a_last_dimension_that_is_not_contiguous_takes_no_fused_kernel() -> None:
    query = torch.zeros(2, 4, 16, 8, dtype=torch.float16).mT
    key = torch.zeros(2, 4, 8, 16, dtype=torch.float16)
    found = choose_attention_kernel(AttentionCall(query, key, query, None, 0.0, False, False), HOPPER)
    why = "for flash and memory-efficient attention the last dimension of query and value is not contiguous"
    assert found == AttentionChoice(AttentionKernel.STEPS, why)


def recorded(dtype: torch.dtype, **given: Any) -> Compiled:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, **given)

    tensors = tuple(torch.randn(2, 4, 8, 12, dtype=dtype, requires_grad=True) for _ in range(3))
    with gpu_attention("h100"):
        compiled = compile_direct(attend, tensors, {}, CompileOptions("eager"))
        for _ in range(2):
            result: Any = compiled.call(*tensors)
            result.sum().backward()
    assert all(tensor.grad is not None and bool(tensor.grad.isfinite().all()) for tensor in tensors)
    return compiled


def test_dropout_is_inside_of_the_kernel_and_runs_on_the_cpu() -> None:
    for dtype, kind in ((torch.float32, "memory-efficient"), (torch.bfloat16, "flash")):
        compiled = recorded(dtype, dropout_p=0.5)
        assert list(attentions_recorded(compiled.captured.calls)) == [
            f"scaled_dot_product_attention on a GPU takes the {kind} kernel"
        ]


def test_steps_are_told_with_their_reason() -> None:
    (said,) = attentions_recorded(recorded(torch.float64).captured.calls)
    assert "functional.scaled_dot_product_attention(query, key, value, **given)`, is computed in" in said
    assert "for flash attention the type is neither float16 nor bfloat16" in said


def test_outside_the_operator_is_torch_s() -> None:
    x = torch.randn(1, 2, 4, 8, requires_grad=True)
    assert "ForCpu" in type(functional.scaled_dot_product_attention(x, x, x).grad_fn).__name__


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_steps_is_what_autograd_gives(causal: bool) -> None:
    query, key, value = (torch.randn(2, heads, 6, 8, requires_grad=True) for heads in (4, 2, 2))
    mask = None if causal else torch.randn(2, 4, 6, 6, requires_grad=True)
    result = functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, enable_gqa=True
    )
    form = attention_steps.Form(None if mask is None else mask.detach(), causal, None)
    tensors = (query.detach(), key.detach(), value.detach())
    torch.testing.assert_close(attention_steps.forward(*tensors, form)[0], result)
    gradient = torch.randn_like(result)
    found = attention_steps.backward(gradient, tensors, form)
    wanted = torch.autograd.grad(result, (query, key, value, *(() if mask is None else (mask,))), gradient)
    torch.testing.assert_close(found[: len(wanted)], wanted)


def test_the_mask_of_a_dropout_is_one_for_forward_and_backward() -> None:
    tensors = (torch.randn(1, 1, 64, 8), torch.randn(1, 1, 64, 8), torch.randn(1, 1, 64, 8))
    form = attention_steps.Form(None, False, None, dropout=0.5, state=7)
    forward, _ = attention_steps.forward(*tensors, form)
    gradient = torch.randn_like(forward)
    *_, of_value, _ = attention_steps.backward(gradient, tensors, form)
    # the result is linear in the value, so both sides give the same number where they drop the same weights
    torch.testing.assert_close((forward * gradient).sum(), (of_value * tensors[2]).sum())


@pytest.mark.rotates
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there, and none is pretended")
def test_flex_attention_compiled_by_itself() -> None:
    """Its block mask is made under `vmap`, its functions make tensors on the GPU, and torch's backward asks
    for a list."""

    def score(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return score + slopes[head] * (column - row)

    seen: list[Compiled] = []
    torch.compiler.reset()
    torch.manual_seed(0)  # for some numbers two kernels of eager's differ by more than the tolerance
    with emulating("h100", fake=False), observing(on_compiled=seen.append):
        slopes = torch.randn(2, device="cuda")
        query, key, value = (torch.randn(1, 2, 128, 16, device="cuda", requires_grad=True) for _ in range(3))
        backend = dynamo_backend(CompileOptions("eager", gpu="h100"))
        attend: Any = torch.compile(flex_attention, backend=backend)
        result = attend(query, key, value, score_mod=score)
        result.sum().backward()
    places = torch.arange(128)
    added = slopes.view(2, 1, 1) * (places - places[:, None])
    wanted = functional.scaled_dot_product_attention(query, key, value, added[None])
    torch.testing.assert_close(result, wanted)
    torch.testing.assert_close(query.grad, torch.autograd.grad(wanted.sum(), query)[0])
    target = seen[0].target()
    assert target.name == "flex_attention"
    assert target.span is not None
    assert target.span.file == __file__
