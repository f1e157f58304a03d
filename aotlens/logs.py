"""What the engine says of itself to who looks for a reason: silent unless `AOTLENS_LOG` names a level."""

import logging
import os

VARIABLE = "AOTLENS_LOG"
"""`debug`, `info` or `warning`."""


def show_logs() -> None:
    """From here on, records of ours at that level go to stderr."""
    level = logging.getLevelNamesMapping().get(os.environ.get(VARIABLE, "").upper())
    ours = logging.getLogger("aotlens")
    if level is None or ours.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    ours.addHandler(handler)
    ours.setLevel(level)
    ours.propagate = False  # torch or the script may have a handler of their own
