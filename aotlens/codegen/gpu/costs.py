"""What one kernel moves and computes, and the least time that takes on the target.

Invariant: bytes of a generated kernel are those of Inductor's own account of its accesses; those of a library
call are the sizes of what it reads and gives.
"""

from dataclasses import replace
from typing import Any

import torch

from aotlens.codegen.gpu.roofline import Work, floor
from aotlens.codegen.gpu.targets import GpuTarget
from aotlens.ir.program import Node
from aotlens.partition.flops import node_flops
from aotlens.report.describe import short_dtype, size_bytes
from aotlens.report.records import Kernel


def bytes_moved(kernel: Any) -> int | None:
    """By Inductor's own kernel, while it is defined; None for one of a template, which keeps no account."""
    if not hasattr(kernel, "estimate_kernel_num_bytes"):
        return None
    return int(kernel.estimate_kernel_num_bytes())


def with_costs(row: Kernel, nodes: list[Node], moved: int | None, target: GpuTarget) -> Kernel:
    """The row with bytes, operations and the time floor; a call without nodes or traffic says none."""
    if row.kind == "library":
        moved = _library_bytes(nodes) if nodes else None
    flops = sum(map(node_flops, nodes))
    row = replace(row, flops=flops if nodes else None)
    if moved is None:
        return row
    work = tuple(_work(node, row.kind == "library") for node in nodes if _tensors(node))
    least = floor(target, moved, work)
    return replace(row, bytes_moved=moved, floor_us=least.time_us, bound=least.bound)


def _library_bytes(nodes: list[Node]) -> int:
    own = {id(node) for node in nodes}
    read = {id(source): source for node in nodes for source in node.inputs()}
    outside = [source for key, source in read.items() if key not in own]
    results = [node for node in nodes if id(node) not in read]
    tensors = tuple(tensor for node in (*outside, *results) for tensor in _tensors(node))
    return sum(size_bytes(tensor) or 0 for tensor in tensors)


def _work(node: Node, in_library: bool) -> Work:
    return Work(node_flops(node), short_dtype(_tensors(node)[0].dtype), "matrix" if in_library else "vector")


def _tensors(node: Node) -> tuple[torch.Tensor, ...]:
    return tuple(value for value in node.results if isinstance(value, torch.Tensor))
