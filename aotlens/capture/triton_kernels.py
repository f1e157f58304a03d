"""Triton kernels of the user's, launched in the function: recorded as what gives the written arguments anew.

Invariant: the arguments keep their values; which of them a kernel writes to is what torch finds in its code.
"""

from functools import cache
from typing import Any

from aotlens.capture.shared_arguments import overlapping, tensors_of
from aotlens.capture.storage import Storage
from aotlens.capture.tape import Tape
from aotlens.capture.writable import check_writable
from aotlens.errors import UnsupportedError
from aotlens.ir.program import Node, TableIndex, getitem, map_leaves
from aotlens.torch_api.triton import mutated_by_triton_kernel, triton_kernel_wrapper_functional

LAUNCH = "triton_kernel_wrapper_mutation"
"""How Dynamo writes `kernel[grid](…)`."""


def record_triton_kernel(tape: Tape, launch: dict[str, Any]) -> Any:
    """Record one launch and note its writes, of which autograd knows nothing, as in eager.

    Raises:
        UnsupportedError: a written argument that overlaps another one, or is a constant.
    """
    given = launch["kwargs"]
    written = mutated_by_triton_kernel(launch)
    named = [(name, one, name in written) for name, value in given.items() for one in tensors_of(value)]
    if overlapping(tape, "a Triton kernel", named):
        raise UnsupportedError(
            "a Triton kernel that writes to tensors which overlap in memory",
            tape.span,
            "clone one of them before the launch",
        )
    for name in written:
        check_writable(tape, given[name], triton_kernel_wrapper_functional, tuple(given.values()))
    result = triton_kernel_wrapper_functional(**launch, tensors_to_clone=written)
    arguments: dict[str, Any] = map_leaves(launch, tape.argument)
    arguments["kernel_idx"] = _table_index(launch["kernel_idx"])
    arguments["constant_args_idx"] = _table_index(launch["constant_args_idx"])
    arguments["tensors_to_clone"] = written
    values = tuple(result[name] for name in written)
    node = tape.add_node(triton_kernel_wrapper_functional, (), arguments, values)
    for name, value in zip(written, values, strict=True):
        tape.write(given[name], _item(tape, node, name, value))
    return None


_table_index = cache(TableIndex)


def _item(tape: Tape, node: Node, name: str, value: Any) -> Node:
    """The operator gives a dict by the kernel's argument names."""
    item = tape.add_node(getitem, (node, name), {}, value)
    tape.track(value, Storage(item, value))
    return item
