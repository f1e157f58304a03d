"""Operators whose fake kernels or decompositions differ from the real kernels.

Covers strides of broadcast operands, batch norm layouts, mixed-dtype matrix products, and the margin losses.
Invariant: a fake result has the dtype, sizes and strides of the eager result.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotlens.capture.storage import has_symbols
from aotlens.torch_api.fake.tensors import (
    is_contiguous,
    is_same_expression,
    meta_kernel_strides,
    suggest_memory_format,
)
from aotlens.torch_api.operators import check, get_decompositions

aten = torch.ops.aten


def _with_broadcast_strides(func: Any) -> Callable[..., Any]:
    """Return the operator on fake tensors, with the strides of the real kernel."""

    def arithmetic(*operands: Any, **kwargs: Any) -> Any:
        result = func(*operands, **kwargs)
        if not _is_ambiguous(result):
            return result
        strides = _strides(func, operands, kwargs)
        if strides is None or all(map(is_same_expression, strides, result.stride())):
            return result
        return result.new_empty_strided(result.shape, strides)

    return arithmetic


def _is_ambiguous(result: Any) -> bool:
    """Return True if the result is channels last with a dimension of size 1, whose stride is ambiguous."""
    ones = result.dim() == 4 and any(type(size) is int and size == 1 for size in result.shape)
    return ones and not is_contiguous(result) and is_contiguous(result, torch.channels_last)


def _strides(func: Any, operands: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the strides of the only operand with dimensions; for several, those of the meta kernel."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor) and operand.dim()]
    if len(tensors) == 1:
        return tuple(tensors[0].stride()) if is_contiguous(tensors[0], torch.channels_last) else None
    return None if any(map(has_symbols, tensors)) else meta_kernel_strides(func, operands, kwargs)


BROADCAST_FIXES = {
    func: _with_broadcast_strides(func)
    for func in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
}
"""By operator; replaces torch's fake kernels."""


INPUTS = {
    aten.native_batch_norm.default: 0,
    aten._native_batch_norm_legit.default: 0,
    aten._native_batch_norm_legit.no_stats: 0,
    aten._native_batch_norm_legit_functional.default: 0,
    aten._native_batch_norm_legit_no_training.default: 0,
    aten.native_batch_norm_backward.default: 1,
}
"""By operator: the position of the input whose layout the first result has."""


def _with_norm_layout(run: Callable[..., Any], input_position: int) -> Callable[..., Any]:
    """Return `run` with the first result in the kernel's layout."""

    def norm(*args: Any, **kwargs: Any) -> Any:
        first, *others = run(*args, **kwargs)
        norm_input = args[input_position]
        if first is not None and norm_input.device.type == "cpu":
            first = first.contiguous(memory_format=suggest_memory_format(norm_input))
        return (first, *others)

    return norm


NORM_FIXES = {func: _with_norm_layout(func, position) for func, position in INPUTS.items()}
"""By operator; replaces torch's fake kernels."""


def norm_decompositions(rules: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Return the decompositions of batch norm among `rules`, with results in the kernel's layout."""
    return {
        func: _with_norm_layout(rules[func], position) for func, position in INPUTS.items() if func in rules
    }


RUNNING, TRAINING = slice(3, 5), 7
"""Batch norm's backward: its running statistics, which it does not read if the flag at `TRAINING` is set."""


def without_unread(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments without statistics that the operator does not read; the forward wrote to them."""
    if func is not aten.native_batch_norm_backward.default or args[TRAINING] is not True:
        return args
    return (*args[: RUNNING.start], None, None, *args[RUNNING.stop :])


FACTORS = {aten.mm.default: 0, aten.mv.default: 0, aten.addmm.default: 1}
"""By operator: the position of the first of its two factors."""


def _with_dtype_check(func: Any, first: int) -> Callable[..., Any]:
    """Return the operator with a check that raises RuntimeError for factors of two dtypes."""

    def product(*args: Any, **kwargs: Any) -> Any:
        left, right = args[first : first + 2]
        check(left.dtype == right.dtype, lambda: _dtype_message(left, right))
        return func(*args, **kwargs)

    return product


def _dtype_message(left: torch.Tensor, right: torch.Tensor) -> str:
    return (
        f"the factors of a matrix product have different types, {left.dtype} {list(left.shape)} and"
        f" {right.dtype} {list(right.shape)}; convert one of them, as with .to({left.dtype})"
    )


PRODUCT_FIXES = {func: _with_dtype_check(func, first) for func, first in FACTORS.items()}
"""By operator; replaces torch's fake kernels."""


MEAN, SUM = 1, 2
"""The values of `reduction`."""


def multi_margin_loss(sample: Tensor, target: Tensor, *options: Any, **named: Any) -> Tensor:
    """Compute `multi_margin_loss`, which has one label per row."""
    op: Any = aten.multi_margin_loss.default
    loss = get_decompositions([op])[op](sample, target, *options, **named)
    return loss if target.dim() else loss.reshape(())


def multilabel_margin_loss(sample: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the loss, and a mask of the labels; each row's labels end at the first -1."""
    if sample.shape != target.shape or sample.dim() > 2:
        raise RuntimeError(f"inconsistent target size: {target.shape} for input of size: {sample.shape}")
    rows, labels = torch.atleast_2d(sample), torch.atleast_2d(target)
    class_count = rows.shape[1]
    order = torch.arange(class_count, device=target.device)
    end = torch.where(labels == -1, order, class_count).amin(1, keepdim=True)
    named = order < end
    labels = torch.where(named, labels, 0)
    is_target = torch.zeros_like(rows).scatter_add(1, labels, named.to(rows.dtype)).sign().detach()
    margins = torch.relu(1 - rows.gather(1, labels).unsqueeze(2) + rows.unsqueeze(1))
    counted = named.unsqueeze(2) & (is_target == 0).unsqueeze(1)
    loss = torch.where(counted, margins, 0).sum((1, 2)) / class_count
    if reduction == MEAN:
        loss = loss.mean()
    elif reduction == SUM:
        loss = loss.sum()
    elif target.dim() < 2:
        loss = loss.reshape(())
    return loss, is_target.reshape(target.shape)


KERNEL_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.multi_margin_loss.default: multi_margin_loss,
    aten.multilabel_margin_loss_forward.default: multilabel_margin_loss,
}
"""By operator; replaces torch's Python kernels, fake kernels and decompositions."""

FAKES: dict[Any, Callable[..., Any]] = {
    **NORM_FIXES,
    **PRODUCT_FIXES,
    **BROADCAST_FIXES,
    **KERNEL_DECOMPOSITIONS,
}
"""Fake kernels that replace torch's where these differ from eager."""
