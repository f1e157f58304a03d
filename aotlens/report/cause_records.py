"""Why a function was compiled once more.  Stdlib only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.report.source_records import Span

__all__ = ["Cause", "CauseKind"]

CauseKind = Literal[
    "size",  # a tensor has another size
    "size relation",  # sizes no longer stand in the relation that the code tested
    "rank",  # a tensor has more or fewer dimensions
    "stride",
    "dtype",
    "device",
    "requires_grad",
    "dispatch keys",  # a subclass, an inference tensor, a conjugate view
    "number",  # a Python number has another value
    "value",  # any other plain value: a string, a bool, an enum
    "length",  # a list, tuple or dict has more or fewer entries
    "type",  # a value has another type: None instead of a tensor
    "object",  # another object stands at that name
    "keys",  # a dict has other keys
    "mode",  # grad mode, autocast, default dtype, number of threads
    "freed",  # an object that the compilation depends on was freed
    "backend",  # `torch.compile` was called with another backend object
    "other",
]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a function was compiled once more: the guard that failed."""

    guard: str
    """The condition over the user's names: `x.shape[0] == 4`, `self.step == 0`."""
    kind: CauseKind
    name: str
    """The value that changed, as the user writes it: `x.shape[0]`, `self.step`, `grad mode`."""
    old: str
    """The value that the earlier compilation holds for; empty where it is not known."""
    new: str
    """The value of the call that failed; empty where it is not known."""
    span: Span | None
    """Where the guard was made; None where no line of the user's did."""
    call: Span | None = None
    """The call that failed, where Dynamo sees the user's line."""
    against: str = ""
    """The compilation that is nearest to the call: `0/1`."""
