"""Settings of this process: garbage collection, log level, and whether a GPU driver is loaded.  Stdlib
only."""

import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def deferred_collection() -> Iterator[None]:
    """Within the context, garbage collection is off: it would scan all nodes repeatedly and find nothing to
    free.  Other threads' garbage waits too."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


VARIABLE = "AOTLENS_LOG"
"""`debug`, `info` or `warning`."""


def show_logs() -> None:
    """From here on, our log records at that level go to stderr."""
    level = logging.getLevelNamesMapping().get(os.environ.get(VARIABLE, "").upper())
    ours = logging.getLogger("aotlens")
    if level is None or ours.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    ours.addHandler(handler)
    ours.setLevel(level)
    ours.propagate = False  # torch or the script may have their own handlers


DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap", "/dev/kfd")
"""Device files of drivers: NVIDIA's, Windows' under Linux, NVIDIA's on a system on a chip, AMD's."""


def may_have_gpu() -> bool:
    """Return True if a GPU driver is loaded."""
    return any(Path(name).exists() for name in DRIVER_FILES)


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent_pid: int) -> None:
    """Make the kernel kill this process when its parent ends (Linux; elsewhere the server does)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the request took effect
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill a child and everything in its process group."""
    for kill in (os.killpg, os.kill):  # the group exists only once the child has created it
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def adopt_orphans() -> None:
    """Make orphaned grandchildren children of this process, which can then end them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
