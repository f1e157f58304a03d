"""The terminal app: a report at the source line.

Invariant: imports neither torch nor the engine; everything shown comes from `aotlens.model` records, read
from a file or sent by the worker. `aotlens.view` turns records into lines and rows (without textual),
`widgets/` draws and moves, `panes/` has the tabs, `app` owns all state.
"""

import os

# Each paint waits for the next frame, and a key causes several; Textual reads this when it is imported.
os.environ.setdefault("TEXTUAL_FPS", "120")
