"""Count the work of the operators that run: what an edit adds to a step is the difference of two counts.

Invariant: a view costs nothing; other operators cost what they cost in the reports about graphs.  Times are
those of a GPU's data sheet: each operator takes the longer of its memory traffic and its arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aotlens.codegen.gpu.cost_model import roofline
from aotlens.ir.tensor_text import short_dtype
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.partition.flops import operator_flops
from aotlens.torch_api.operators import tensor_leaves

__all__ = ["Work", "WorkCounter"]

HOST_GB_PER_S = 25.0
"""Assumed between a GPU and the host's memory, in 10^9 bytes a second: PCIe 4 with 16 lanes, in practice."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of all operators until some moment, or between two."""

    flops: int = 0
    operators: int = 0
    """Calls, without views."""
    microseconds: float = 0.0
    """Predicted for a GPU; 0 without one."""

    def __sub__(self, earlier: "Work") -> "Work":
        return Work(
            self.flops - earlier.flops,
            self.operators - earlier.operators,
            self.microseconds - earlier.microseconds,
        )


class WorkCounter:
    """The work until now, and at the end of each call of an optimizer's `step`."""

    def __init__(self, target: GpuTarget | None = None) -> None:
        self._target = target
        self.total = Work()
        self.at_ends: list[Work] = []

    def count(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any, read: list[Any]) -> None:
        """Add an operator that ran; `read` holds the tensors among its arguments."""
        if getattr(func, "is_view", False):
            return
        flops, has_formula = operator_flops(func, args, kwargs, result, read)
        microseconds = 0.0
        if self._target is not None:
            written = tensor_leaves(result)
            microseconds = _microseconds(self._target, (read, written), flops, is_product=has_formula)
        total = self.total
        self.total = Work(total.flops + flops, total.operators + 1, total.microseconds + microseconds)

    def step_ends(self) -> None:
        self.at_ends.append(self.total)

    def of_step(self, calls: int) -> Work:
        """Return the work of the last step, which has this many calls of `step`."""
        if len(self.at_ends) > calls:
            return self.at_ends[-1] - self.at_ends[-1 - calls]
        return self.at_ends[-1] if self.at_ends else self.total


def _microseconds(
    target: GpuTarget, traffic: tuple[Sequence[Any], Sequence[Any]], flops: int, *, is_product: bool
) -> float:
    """Return the time floor of an operator that reads and writes these tensors."""
    read, written = traffic
    moved_bytes = sum(tensor.numel() * tensor.element_size() for tensor in (*read, *written))
    if len({tensor.device.type for tensor in (*read, *written) if tensor.dim()}) > 1:
        return moved_bytes / 2 / (HOST_GB_PER_S * 1e3)  # a copy to or from the host: read and written once
    dtype = short_dtype(written[0].dtype) if written else "f32"
    work = roofline.Work(flops, dtype, "matrix" if is_product else "vector")
    return roofline.floor(target, moved_bytes, (work,)).time_us
