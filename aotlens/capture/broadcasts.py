"""How arithmetic with a broadcast operand lays out its result where a dimension has size 1.

torch's fake kernels take any channels-last operand for the layout of the result; the real kernels do so only
where all operands have the same shape, and otherwise keep the operand's own strides.  Only strides of
dimensions of size 1 differ, but operators read the memory format off them: a group norm that is contiguous by
its fake strides alone fails when it runs.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.capture.storage import has_symbols
from aotlens.torch_api.fake import is_contiguous, is_same_expression, meta_kernel_strides

aten = torch.ops.aten


def laid_out(func: Any) -> Callable[..., Any]:
    """The operator on fake tensors, with the strides that the real kernel gives."""

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
    """Whether it lies as channels last and a dimension has size 1, whose stride that leaves open."""
    ones = result.dim() == 4 and any(type(size) is int and size == 1 for size in result.shape)
    return ones and not is_contiguous(result) and is_contiguous(result, torch.channels_last)


def _strides(func: Any, operands: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Those of the only operand that is no number; with several, what the kernel computes of known sizes."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor) and operand.dim()]
    if len(tensors) == 1:
        return tuple(tensors[0].stride()) if is_contiguous(tensors[0], torch.channels_last) else None
    return None if any(map(has_symbols, tensors)) else meta_kernel_strides(func, operands, kwargs)


BROADCASTS = {
    func: laid_out(func) for func in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
}
"""By operator; in place of torch's fake kernels."""
