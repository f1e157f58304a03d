"""How the CPU's kernels of batch norm lay out what they give: contiguous, or channels last as the input is.

torch's fake kernels and decompositions keep any other strides, those of a transposed input for one, so that a
view of the result that eager has failed, and its strides were not eager's.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.torch_api.fake import suggest_memory_format

aten = torch.ops.aten

INPUTS = {
    aten.native_batch_norm.default: 0,
    aten._native_batch_norm_legit.default: 0,
    aten._native_batch_norm_legit.no_stats: 0,
    aten._native_batch_norm_legit_functional.default: 0,
    aten._native_batch_norm_legit_no_training.default: 0,
    aten.native_batch_norm_backward.default: 1,
}
"""By operator: the position of the input, as whose first result is laid out."""


def laid_out(run: Callable[..., Any], at: int) -> Callable[..., Any]:
    """`run`, with the first result as the kernel gives it."""

    def norm(*args: Any, **kwargs: Any) -> Any:
        first, *others = run(*args, **kwargs)
        given = args[at]
        if first is not None and given.device.type == "cpu":
            first = first.contiguous(memory_format=suggest_memory_format(given))
        return (first, *others)

    return norm


NORMS = {func: laid_out(func, at) for func, at in INPUTS.items()}
"""By operator; in place of torch's fake kernels."""


def laid_out_rules(rules: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Those of some decompositions that take such an operator apart, with its results as the kernel's."""
    return {func: laid_out(rules[func], at) for func, at in INPUTS.items() if func in rules}
