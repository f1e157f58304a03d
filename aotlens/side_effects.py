"""What becomes of all that a function does beside its result, while it is recorded.  Stdlib only."""

from enum import Enum


class SideEffects(Enum):
    """By what was asked for: one compilation for many calls, for calls as they come, or a graph."""

    REPLAYED = "replayed"
    """Each call does it again; what it could not is refused."""
    FOR_ONE_CALL = "for one call"
    """As above, but what could not be done again makes the compilation serve the call that it is made for."""
    TRACED = "traced"
    """It happens while the function is traced; what leaves tensors of the recording behind is refused."""
