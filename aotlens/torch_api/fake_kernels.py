"""Corrections of the kernels that compute fake tensors."""

import random
import sys
from inspect import signature
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aotlens.torch_api.fake import is_same_expression
from aotlens.torch_api.operators import check

__all__ = [
    "accept_grouped_mm_dtypes",
    "correct_view_strides",
    "is_pending_collective",
    "isolate_collectives_rng",
]


class _ReportsBfloat16:
    """A tensor that gives another type when it is asked for it, and the same answers to all else."""

    dtype = torch.bfloat16

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def is_pending_collective(value: object) -> bool:
    """Whether this is what a collective of eager's gives before anybody waits for it."""
    module: Any = sys.modules.get("torch.distributed._functional_collectives")
    return module is not None and isinstance(value, module.AsyncCollectiveTensor)


def isolate_collectives_rng() -> None:
    """Have the fake kernels of collectives take their random ids from a generator of their own.

    Idempotent: theirs is `random`, whose state is the user's.
    """
    module: Any = sys.modules.get("torch.distributed._meta_registrations")
    if module is not None and getattr(module, "random", None) is random:
        module.random = random.Random()


def accept_grouped_mm_dtypes() -> None:
    """Have `_grouped_mm`'s fake kernel take the types that its kernels take, where it knows bfloat16 alone.

    Idempotent, and for all fake tensors: Inductor asks too.  The kernel's other checks stay.
    """
    from torch import _meta_registrations

    module: Any = _meta_registrations
    common = getattr(module, "_meta_grouped_mm_common", None)
    if common is None or hasattr(common, "knows_types"):
        return

    def product(mat_a: Any, mat_b: Any, **options: Any) -> Any:
        known = mat_a.dtype in (torch.float32, torch.float16) and mat_a.dtype is mat_b.dtype
        if options.get("scale_a") is not None or not known:
            return common(mat_a, mat_b, **options)
        check(
            options["out_dtype"] in (None, mat_a.dtype),
            lambda: "Grouped gemm output dtype must match `mat_a` dtype",
        )
        common(_ReportsBfloat16(mat_a), _ReportsBfloat16(mat_b), **{**options, "out_dtype": None})
        return module._create_grouped_mm_output_tensor(mat_a, mat_b, options["offs"], None)

    product.knows_types = True  # type: ignore[attr-defined]
    module._meta_grouped_mm_common = product


def correct_view_strides() -> None:
    """Have the fake kernel of `view` give dimensions of size 1 the strides that the real kernel gives them.

    Operators read the memory format off those strides: a group norm whose input is contiguous by its fake
    strides alone fails when it runs.  Idempotent, and for all fake tensors: Inductor asks too.
    """
    from torch._subclasses import fake_impls

    kernels: Any = fake_impls.op_implementations_dict
    kernel = kernels.get(torch.ops.aten.view.default)
    strides_of: Any = getattr(fake_impls, "_compute_stride", None)
    if kernel is None or strides_of is None or hasattr(kernel, "knows_strides"):
        return
    oblivious = {"size_oblivious": True} if "size_oblivious" in signature(strides_of).parameters else {}

    def view(mode: FakeTensorMode, func: Any, source: Any, *shape: Any, **options: Any) -> Any:
        result = kernel(mode, func, source, *shape, **options)
        ones = [dim for dim, size in enumerate(result.shape) if type(size) is int and size == 1]
        if not ones:
            return result
        strides = strides_of(source.shape, source.stride(), result.shape, **oblivious)
        if strides is None or all(is_same_expression(strides[dim], result.stride(dim)) for dim in ones):
            return result
        return source.as_strided(result.shape, strides)

    view.knows_strides = True  # type: ignore[attr-defined]
    kernels[torch.ops.aten.view.default] = view
