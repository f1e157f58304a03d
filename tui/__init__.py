"""The terminal app: a report at the source line.

Invariant: imports neither torch nor the engine; everything shown comes from `aotlens.model` records, read
from a file or sent by the worker. `aotlens.view` turns records into lines and rows (without textual),
`widgets/` draws and moves, `panes/` has the tabs, `app` owns all state.
"""

import os

FRAMES_PER_S = 240
"""Each paint waits for one or two frames, and a key causes two paints: the row, then what it is linked to.
Textual reads it once, at its import.
"""

FRAMES_VARIABLE = "TEXTUAL_FPS"
_IS_OURS = FRAMES_VARIABLE not in os.environ

os.environ.setdefault(FRAMES_VARIABLE, str(FRAMES_PER_S))


def restore_environment() -> None:
    """Remove our variable once Textual has read it: the user's script inherits the environment."""
    if _IS_OURS:
        os.environ.pop(FRAMES_VARIABLE, None)
