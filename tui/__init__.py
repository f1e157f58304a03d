"""The terminal app: a report at the source line.

Invariant: imports neither torch nor the engine; everything shown comes from `aotlens.model` records, read
from a file or sent by the worker. `aotlens.view` turns records into lines and rows (without textual),
`widgets/` draws and moves, `panes/` has the tabs, `app` owns all state.
"""

import os

FRAMES_PER_S = 120
"""Each paint waits for the next frame, and a key causes several. Textual reads it once, at its import."""

os.environ.setdefault("TEXTUAL_FPS", str(FRAMES_PER_S))
