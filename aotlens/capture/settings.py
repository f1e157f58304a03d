"""What the run on fake tensors needs to know beside the function."""

from dataclasses import dataclass

from aotlens.capture.operators import Decompositions
from aotlens.torch_api import FakeTensorMode


@dataclass(frozen=True, slots=True)
class Settings:
    fake_mode: FakeTensorMode
    decompositions: Decompositions
    dynamic: bool = False
    """Whether sizes are symbols."""
    observe_variables: bool = False
    allow_side_effects: bool = False
    """Whether the function may change its surroundings and its containers, once, while it is traced."""
