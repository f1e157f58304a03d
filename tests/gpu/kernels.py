"""Triton kernels that tests compile; importing this needs Triton."""

import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, y_ptr, BLOCK: tl.constexpr):  # type: ignore  # noqa: ANN001, ANN201, N803, PGH003
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x / tl.sum(x, 0))


@triton.jit
def doubling(x_ptr, out_ptr, count, BLOCK: tl.constexpr):  # type: ignore  # noqa: ANN001, ANN201, N803, PGH003
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(out_ptr + at, x * 2, mask=at < count)


@triton.jit
def refused(x_ptr, out_ptr, count, BLOCK: tl.constexpr):  # type: ignore  # noqa: ANN001, ANN201, N803, PGH003
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.dot(x, x))
