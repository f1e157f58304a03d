"""Count the work of the operators that run: what an edit adds to a step is the difference of two counts.

Invariant: a view costs nothing; other operators cost what they cost in the reports about graphs.
"""

from dataclasses import dataclass
from typing import Any

from aotlens.partition.flops import operator_flops

__all__ = ["Work", "WorkCounter"]


@dataclass(frozen=True, slots=True)
class Work:
    """The work of all operators until some moment, or between two."""

    flops: int = 0
    operators: int = 0
    """Calls, without views."""

    def __sub__(self, earlier: "Work") -> "Work":
        return Work(self.flops - earlier.flops, self.operators - earlier.operators)


class WorkCounter:
    """The work until now, and at the end of each call of an optimizer's `step`."""

    def __init__(self) -> None:
        self.total = Work()
        self.at_ends: list[Work] = []

    def count(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any, read: list[Any]) -> None:
        """Add an operator that ran; `read` holds the tensors among its arguments."""
        if getattr(func, "is_view", False):
            return
        flops, _ = operator_flops(func, args, kwargs, result, read)
        self.total = Work(self.total.flops + flops, self.total.operators + 1)

    def step_ends(self) -> None:
        self.at_ends.append(self.total)

    def of_step(self, calls: int) -> Work:
        """Return the work of the last step, which has this many calls of `step`."""
        if len(self.at_ends) > calls:
            return self.at_ends[-1] - self.at_ends[-1 - calls]
        return self.at_ends[-1] if self.at_ends else self.total
