"""Reductions and scans with the kernel's own combine function, over whole slices.

The interpreter calls the function once per element. Combining halves takes a logarithmic number of calls, in
tree order, as on the hardware.
"""

from typing import Any

import numpy as np


def reduce_by_halves(self: Any, operands: Any) -> Any:
    """Replace `ReduceOps.generic_reduce`."""
    tensors, axis = self.unravel(operands, self.axis)
    slices = [np.moveaxis(tensor.handle.data, axis, -1) for tensor in tensors]
    while (count := slices[0].shape[-1]) > 1:
        even = count - count % 2
        joined = _combined(
            self, [x[..., :even:2] for x in slices], [x[..., 1:even:2] for x in slices], tensors
        )
        slices = [
            np.concatenate([done, whole[..., even:]], -1) if count % 2 else done
            for done, whole in zip(joined, slices, strict=True)
        ]
    results = [x[..., 0] for x in slices]
    if self.keep_dims:
        rank = operands[0].handle.data.ndim
        results = [
            np.expand_dims(x, axis) if self.axis is not None else x.reshape((1,) * rank) for x in results
        ]
    elif self.axis is None:
        results = [x.item() for x in results]
    return [self.to_tensor(x, tensor.dtype) for x, tensor in zip(results, tensors, strict=True)]


def scan_by_doubling(self: Any, operands: Any) -> Any:
    """Replace `ScanOps.generic_scan`."""
    slices = [np.moveaxis(tensor.handle.data, self.axis, -1).copy() for tensor in operands]
    distance, count = 1, slices[0].shape[-1]
    while distance < count:
        shifted = [np.roll(x, distance, -1) for x in slices]
        joined = _combined(self, shifted, slices, operands)
        slices = [
            np.concatenate([unchanged[..., :distance], new[..., distance:]], -1)
            for unchanged, new in zip(slices, joined, strict=True)
        ]
        distance *= 2
    return [
        self.to_tensor(np.moveaxis(x, -1, self.axis), tensor.dtype)
        for x, tensor in zip(slices, operands, strict=True)
    ]


def _combined(self: Any, left: list[Any], right: list[Any], like: Any) -> list[Any]:
    """Call the kernel's function on whole slices, which the interpreter treats as blocks of any shape."""
    arguments = [
        self.to_tensor(np.ascontiguousarray(x), tensor.dtype)
        for side in (left, right)
        for x, tensor in zip(side, like, strict=True)
    ]
    result = self.combine_fn.fn(*arguments)
    results = result if isinstance(result, tuple) else (result,)
    shape = left[0].shape
    return [_as_array(x, shape, operand.dtype) for x, operand in zip(results, left, strict=True)]


def _as_array(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return what the kernel's function returned as an array like its operands.

    The function may return a Python number, or a block of one element, which counts for the whole slice.
    """
    data = value.handle.data if hasattr(value, "handle") else value
    return np.broadcast_to(np.asarray(data).astype(dtype, copy=False), shape)
