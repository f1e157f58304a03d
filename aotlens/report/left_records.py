"""What a function leaves outside of itself, in a report.

Invariant: stdlib only, as all records.
"""

from dataclasses import dataclass
from typing import Literal

from aotlens.report.source_records import Site

Leaving = Literal["bound", "set", "appended", "refilled", "removed", "emptied", "accumulated"]


@dataclass(frozen=True, slots=True)
class Left:
    """One place outside of the function that it changes, and that each compiled call changes again."""

    place: str
    """In the user's own names: `self.last`, `history[0]`, `state['keys']`; an item of a list as the first
    call left it."""
    handling: Leaving
    """What the wrapper does there: binds the name, sets the item of a dict, appends to a list, exchanges what
    a list holds, removes a name or an item, empties a container, adds to
    the gradient that it finds."""
    outputs: tuple[int, ...]
    """The rows of `Target.outputs` that it then holds, several for a tuple or a dict of them; empty for what
    is taken away."""
    carried: bool
    """Whether a call begins with the tensor that the one before left there."""
    reason: str
    sites: tuple[Site, ...]
    """The expressions that write there; where only the data tells which, all that may."""
