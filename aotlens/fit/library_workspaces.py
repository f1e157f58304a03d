"""Memory that cuBLAS keeps once a thread has called it: allocated like that of tensors, and never freed.

Source: the allocator's history of training steps on an H100 with torch 2.11 (`scripts/fit/gpu_table.py`).
Autograd runs the backward on a thread of its own, so a training step has two of each workspace.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["LibraryWorkspaces"]

KIB = 1 << 10
BLAS_BYTES = 2 * 4096 * KIB + 8 * 16 * KIB
HOPPER_BLAS_BYTES = 32 << 20
LT_BYTES = 1 << 20
"""Of cuBLASLt, which adds a bias as it multiplies."""
BLAS_SETTING = "CUBLAS_WORKSPACE_CONFIG"
"""The environment variable of the sizes: pairs of KiB and count, as `:4096:2:16:8`."""
LT_SETTING = "CUBLASLT_WORKSPACE_SIZE"
"""The environment variable of the size in KiB."""

PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "addbmm")
)
LT_PRODUCTS = frozenset(f"aten::{name}" for name in ("_addmm_activation", "_int_mm", "_scaled_mm"))


class LibraryWorkspaces:
    """The workspaces that exist already; each thread has its own."""

    def __init__(self, is_hopper: bool) -> None:
        self._blas_bytes = _blas_bytes(HOPPER_BLAS_BYTES if is_hopper else BLAS_BYTES)
        self._lt_bytes = int(os.environ.get(LT_SETTING, LT_BYTES // KIB)) * KIB
        self._existing: set[tuple[str, bool]] = set()

    def added_by(self, func: Any, args: tuple[Any, ...], in_backward: bool) -> Iterator[int]:
        """Yield the size in bytes of each workspace that the call of an operator on the GPU allocates."""
        name = getattr(getattr(func, "_schema", None), "name", None)
        uses_lt = name in LT_PRODUCTS or (name == "aten::addmm" and _adds_bias(*args[:3]))
        if name in PRODUCTS or uses_lt:
            yield from self._added("blas", self._blas_bytes, in_backward)
        if uses_lt:
            yield from self._added("lt", self._lt_bytes, in_backward)

    def _added(self, library: str, size_bytes: int, in_backward: bool) -> Iterator[int]:
        key = library, in_backward
        if key not in self._existing and size_bytes:
            self._existing.add(key)
            yield size_bytes


def _blas_bytes(default: int) -> int:
    pairs = re.findall(r":(\d+):(\d+)", os.environ.get(BLAS_SETTING, ""))
    return sum(int(size) * int(count) for size, count in pairs) * KIB if pairs else default


def _adds_bias(bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True for a row that is added to each row of a product, as in `nn.Linear`."""
    return bias.ndim == 1 and bias.is_contiguous() and min(right.shape) > 1
