"""User-written Triton kernels: launches (`kernel[grid](…)`) recorded as one functional operator."""

from collections.abc import Callable
from functools import cache
from typing import Any

from aotlens.capture.graph import Recording
from aotlens.capture.mutations.in_place import record_write
from aotlens.capture.mutations.writability import check_writable, reject_overlap, tensors_of
from aotlens.capture.storage import Storage
from aotlens.ir.program import Node, TableIndex, getitem, map_leaves
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import tensor_leaves
from aotlens.torch_api.triton import (
    launch_kernel_operator,
    mutated_by_triton_kernel,
    triton_kernel_wrapper_functional,
)


def launch_as_operator(original: Callable[..., Any], kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Record a launch on fake tensors; `original` is the kernel class's `run`."""
    has_fakes = any(isinstance(value, FakeTensor) for value in tensor_leaves((args, kwargs)))
    if kwargs.get("warmup") or not has_fakes:
        return original(kernel, *args, **kwargs)
    keywords = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
    return launch_kernel_operator(kernel, kwargs["grid"], args, keywords)


LAUNCH = "triton_kernel_wrapper_mutation"
"""Dynamo's operator for `kernel[grid](…)`."""


def record_triton_kernel(recording: Recording, launch: dict[str, Any]) -> Any:
    """Record one launch and its writes, which autograd ignores as in eager.

    Raises:
        UnsupportedError: a written argument overlaps another one, or is a constant.
    """
    kernel_args = launch["kwargs"]
    written = mutated_by_triton_kernel(launch)
    named = [
        (name, tensor, name in written) for name, value in kernel_args.items() for tensor in tensors_of(value)
    ]
    reject_overlap(recording, "a Triton kernel", named)
    for name in written:
        check_writable(
            recording, kernel_args[name], triton_kernel_wrapper_functional, tuple(kernel_args.values())
        )
    result = triton_kernel_wrapper_functional(**launch, tensors_to_clone=written)
    arguments: dict[str, Any] = map_leaves(launch, recording.argument)
    arguments["kernel_idx"] = _table_index(launch["kernel_idx"])
    arguments["constant_args_idx"] = _table_index(launch["constant_args_idx"])
    arguments["tensors_to_clone"] = written
    values = tuple(result[name] for name in written)
    node = recording.add_node(triton_kernel_wrapper_functional, (), arguments, values)
    for name, value in zip(written, values, strict=True):
        record_write(recording, kernel_args[name], _item(recording, node, name, value))
    return None


_table_index = cache(TableIndex)


def _item(recording: Recording, node: Node, name: str, value: Any) -> Node:
    """Return one entry of the operator's result, a dict by argument name."""
    item = recording.add_node(getitem, (node, name), {}, value)
    recording.track(value, Storage(item, value))
    return item
