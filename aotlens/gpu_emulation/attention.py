"""Record `scaled_dot_product_attention` as on a GPU: the operator that torch's selector would choose there.

Torch's selector uses the device on which it runs, and on a CPU decomposes attention with dropout and in a few
other cases. Invariant: this applies to fake tensors only; real tensors use torch's own selection.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

from aotlens.capture.operators import aten
from aotlens.codegen.gpu.attention import (
    AttentionCall,
    AttentionChoice,
    AttentionKernel,
    choose_attention_kernel,
    chosen_steps,
)
from aotlens.codegen.gpu.interpreter.cpu_kernels import register_cpu_kernels
from aotlens.gpu_emulation.operator_kernels import overriding_kernels
from aotlens.model.gpus.names import find_target
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.modes import mode_callbacks

NAME = "scaled_dot_product_attention"
OPERATOR = aten.scaled_dot_product_attention.default
KEYS = ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA")
"""Dispatch keys of a call: fake tensors of either device, with and without a gradient."""
FLASH_UNIT, MASK_UNIT = 8, 8
"""Heads are padded to multiples of the first; rows of a mask are aligned to multiples of the second."""


@contextmanager
def gpu_attention(gpu: str) -> Iterator[None]:
    """Within the context, attention on fake tensors is recorded as on that GPU, and its operators run on the
    CPU."""
    target = find_target(gpu)

    def attention(  # noqa: PLR0913 (arguments as the operator has them)
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if not isinstance(query, FakeTensor):
            return OPERATOR.decompose(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        mask = _additive_mask(attn_mask, query)
        call = AttentionCall(query, key, value, mask, dropout_p, is_causal, enable_gqa)
        return _recorded(call, choose_attention_kernel(call, target.compute_capability), scale)

    cpu_kernels = register_cpu_kernels()
    chosen_steps.clear()
    try:
        with overriding_kernels((NAME, attention, key) for key in KEYS):
            yield
    finally:
        cpu_kernels._destroy()


def _recorded(call: AttentionCall, chosen: AttentionChoice, scale: float | None) -> Any:
    match chosen.kind:
        case AttentionKernel.FLASH:
            return _flash(call, scale)
        case AttentionKernel.EFFICIENT:
            return _efficient(call, scale)
        case AttentionKernel.STEPS:
            _note(chosen.why)
            return aten._scaled_dot_product_attention_math.default(
                *call.tensors,
                call.mask,
                call.dropout,
                call.is_causal,
                scale=scale,
                enable_gqa=call.enable_gqa,
            )[0]


def _flash(call: AttentionCall, scale: float | None) -> Any:
    """Call the flash kernel with padded heads; the scale is that of the original heads."""
    head = call.query.shape[-1]
    rest = -head % FLASH_UNIT
    tensors = [functional.pad(tensor, (0, rest)) if rest else tensor for tensor in call.tensors]
    result = aten._scaled_dot_product_flash_attention.default(
        *tensors, call.dropout, call.is_causal, scale=head**-0.5 if scale is None else scale
    )[0]
    return result[..., :head] if rest else result


def _efficient(call: AttentionCall, scale: float | None) -> Any:
    mask = call.mask
    if mask is not None:
        mask = _aligned(mask).expand(*call.query.shape[:3], call.key.shape[2])
    return aten._scaled_dot_product_efficient_attention.default(
        *call.tensors, mask, call.has_gradient, call.dropout, call.is_causal, scale=scale
    )[0]


def _additive_mask(mask: Any, query: Any) -> Any:
    """Convert a boolean mask to one that is added to the scores."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    lowest = torch.full((), float("-inf"), dtype=query.dtype, device=mask.device)
    return torch.where(mask, torch.zeros((), dtype=query.dtype, device=mask.device), lowest)


def _aligned(mask: Any) -> Any:
    """Return the mask with rows aligned as the kernel needs."""
    if mask.stride(-1) == 1 and not any(stride % MASK_UNIT for stride in mask.stride()[:-1]):
        return mask
    size = mask.shape[-1]
    return functional.pad(mask, (0, MASK_UNIT - size % MASK_UNIT))[..., :size]


def _note(why: str) -> None:
    """Note why the attention that is being recorded is decomposed."""
    for current_frames in mode_callbacks("current_frames"):
        chosen_steps[current_frames().innermost] = why
