"""CPU kernels for operators that only a GPU has, and that a graph's wrapper calls.

Invariant: each computes what eager computes on the CPU, in the layout that the CUDA operator returns.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotlens.capture.operators import aten
from aotlens.codegen.gpu.interpreter.attention_steps import Form, backward, forward, rng_state_of

EFFICIENT_ROWS = 32
"""The memory-efficient kernel pads its log-sum-exp to blocks of this many rows."""


def register_cpu_kernels() -> Any:
    """Register the kernels; the registration ends when the returned library is destroyed."""
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in KERNELS.items():
        library.impl(name, _with_operator_layout(getattr(aten, name).default, kernel), "CPU")
    return library


def _with_operator_layout(op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel so that its outputs have the layout of the operator's meta function."""

    def call(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        promised = op(*map(_on_meta, args), **{key: _on_meta(value) for key, value in kwargs.items()})
        return tuple(
            _with_layout(output, shape)
            for output, shape in zip(kernel(*args, **kwargs), promised, strict=True)
        )

    return call


def _on_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, Tensor) else value


def _with_layout(output: Any, promised: Any) -> Any:
    """Return an output with the strides that the CUDA operator's output would have."""
    if (
        not isinstance(output, Tensor)
        or promised is None
        or output.shape != promised.shape
        or output.stride() == promised.stride()
    ):
        return output
    return torch.empty_strided(output.shape, promised.stride(), dtype=output.dtype).copy_(output)


def _attend(query: Tensor, key: Tensor, value: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    """Return the result, and the log-sum-exp of each row."""
    if form.dropout:
        return forward(query, key, value, form)
    result, log_sum = aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, form.causal, attn_mask=form.mask, scale=form.scale
    )
    return result, log_sum


def _state(first: int, *sizes: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return an RNG state: a tensor with the seed of its dropout, where it has one."""
    return torch.full(sizes, first, dtype=torch.int64).to(dtype)


def _flash(  # noqa: PLR0913 (arguments as the operator has them)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    first = rng_state_of() if dropout_p else 0
    result, log_sum = _attend(query, key, value, Form(None, is_causal, scale, dropout_p, first))
    empty = torch.empty(0, dtype=query.dtype)
    state = (_state(first, 2, dtype=torch.uint64), _state(0, dtype=torch.uint64))
    lengths = (query.shape[2], key.shape[2])
    return result, log_sum.contiguous(), None, None, *lengths, *state, empty


def _flash_backward(  # noqa: PLR0913 (arguments as the operator has them)
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    log_sum: Tensor,
    *rest: Any,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    dropout_p, is_causal, state = rest[4], rest[5], rest[6]
    form = Form(None, is_causal, scale, dropout_p, int(state.flatten()[0]))
    return _backward((gradient, query, key, value), (result, log_sum), form)


def _efficient(  # noqa: PLR0913 (arguments as the operator has them)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    first = rng_state_of() if dropout_p else 0
    result, log_sum = _attend(query, key, value, Form(attn_bias, is_causal, scale, dropout_p, first))
    rows = -(-query.shape[2] // EFFICIENT_ROWS) * EFFICIENT_ROWS if compute_log_sumexp else 0
    padded = torch.zeros(*log_sum.shape[:2], rows)
    if rows:
        padded[..., : query.shape[2]] = log_sum
    return result, padded, _state(first), _state(0)


def _efficient_backward(  # noqa: PLR0913 (arguments as the operator has them)
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    log_sum = logsumexp[..., : query.shape[2]]
    form = Form(attn_bias, is_causal, scale, dropout_p, int(philox_seed))
    if attn_bias is not None and grad_input_mask[3]:
        *gradients, of_mask = backward(gradient, (query, key, value), form)
        return *gradients, of_mask.to(attn_bias.dtype)
    return *_backward((gradient, query, key, value), (out, log_sum), form), Tensor()


def _backward(tensors: tuple[Tensor, ...], saved: tuple[Tensor, Tensor], form: Form) -> tuple[Tensor, ...]:
    """Return the gradients of query, key and value, from the result and log-sum-exp that the forward saved.

    With dropout both are ignored: the CPU's fused operator has no dropout, so the steps run again with the
    seed's mask.
    """
    gradient, query, key, value = tensors
    if form.dropout:
        return backward(gradient, (query, key, value), form)[:3]
    result, log_sum = saved
    log_sum = log_sum.transpose(1, 2).contiguous().transpose(1, 2)  # the layout of the CPU's forward
    gradients: tuple[Tensor, ...] = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, query, key, value, result, log_sum, 0.0, form.causal, attn_mask=form.mask, scale=form.scale
    )
    return gradients


KERNELS: dict[str, Callable[..., Any]] = {
    "_scaled_dot_product_flash_attention": _flash,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_efficient_attention": _efficient,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
}
"""By the operator's name in `aten`."""
