"""Triton kernels of the examples; import this module where Triton is installed."""

import triton
import triton.language as tl


@triton.jit
def move(x, y, size: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Copy a tensor with an instruction of the GPU."""
    offsets = tl.arange(0, size)
    values = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [tl.load(x + offsets)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(y + offsets, values)
