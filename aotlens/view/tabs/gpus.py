"""The rows of the list from which the user chooses a GPU."""

from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.model.gpus.names import find_target
from aotlens.model.gpus.targets import TARGETS
from aotlens.view.tabs.tables.rows import Cells, Column, LazyRows, Link, Listing, Part

__all__ = ["gpu_listing", "gpu_row"]

ROWS = (None, *TARGETS)
"""None is no GPU: no kernels are generated."""
COLUMNS = (
    Column("", widest=1, narrowest=1),
    Column("GPU", widest=30, narrowest=10),
    Column("architecture", widest=12, narrowest=6),
    Column("memory", widest=8, narrowest=7, align="right"),
)


def gpu_listing(current: str | None) -> Listing:
    """Return the known GPUs, after a row for none; the current one is marked."""
    chosen = _choice(current)

    def cells_of(gpu: GpuTarget | None) -> Cells:
        mark = Part("✓" if gpu is chosen else "", "accent")
        if gpu is None:
            return (mark, Part("no kernels", "name"), "", "")
        return (mark, Part(gpu.name, "name"), gpu.sm, f"{gpu.memory_gib} GiB")

    def text(gpu: GpuTarget | None) -> str:
        return f"{gpu.name} {gpu.sm}, {gpu.memory_gib} GiB" if gpu is not None else ""

    rows = LazyRows(
        ROWS,
        lambda gpu: f"gpu:{gpu.name if gpu is not None else ''}",
        cells_of,
        text,
        lambda _: Link(),
    )
    return Listing(COLUMNS, rows, "there is no GPU")


def gpu_row(current: str | None) -> int:
    """Return the row of a GPU, as the user named it; the first for none."""
    return ROWS.index(_choice(current))


def _choice(current: str | None) -> GpuTarget | None:
    """Return the GPU that a trace with this name uses; None without one."""
    return find_target(current) if current else None
