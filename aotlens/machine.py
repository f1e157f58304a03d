"""Whether this machine may have a GPU, told by its files alone.

Invariant: nothing here starts a driver.  To ask torch does: a process that has started CUDA's driver cannot
fork children that use it.
"""

from pathlib import Path

DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap", "/dev/kfd")
"""What a driver puts there: NVIDIA's, Windows' under Linux, NVIDIA's on a system on a chip, AMD's."""


def may_have_gpu() -> bool:
    """Whether a driver of a GPU is loaded."""
    return any(Path(name).exists() for name in DRIVER_FILES)
