"""What the run on fake tensors needs to know beside the function."""

from collections.abc import Callable
from dataclasses import dataclass

from aotlens.capture.operators import Decompositions
from aotlens.ir.program import Program
from aotlens.ir.regions import Region
from aotlens.side_effects import SideEffects
from aotlens.torch_api.fake import FakeTensorMode

SplitRegion = Callable[[Program], Region]
"""Divides the program of a marked region, forward and backward in one, into the two."""


@dataclass(frozen=True, slots=True)
class Settings:
    fake_mode: FakeTensorMode
    decompositions: Decompositions
    dynamic: bool = False
    """Whether sizes are symbols."""
    symbolic_numbers: bool = False
    """Whether plain integers among the arguments are symbols too."""
    observe_variables: bool = False
    side_effects: SideEffects = SideEffects.REPLAYED
    split_region: SplitRegion | None = None
    """By the partition policy of the whole; None leaves a marked region's gradient to torch."""
