"""Settings of this process: garbage collection, log level, whether a GPU driver is loaded.  Stdlib only."""

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def deferred_collection() -> Iterator[None]:
    """Within it the collector does not run by itself: it would look through every node made so far again
    and again, and find nothing to free.  Other threads' garbage waits as long."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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


DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap", "/dev/kfd")
"""What a driver puts there: NVIDIA's, Windows' under Linux, NVIDIA's on a system on a chip, AMD's."""


def may_have_gpu() -> bool:
    """Whether a driver of a GPU is loaded."""
    return any(Path(name).exists() for name in DRIVER_FILES)
