"""The rows of the list from which the user chooses a GPU."""

from aotlens.view.gpus import GPU_CHOICES, GpuChoice
from aotlens.view.tabs.tables.rows import Cells, Column, LazyRows, Link, Listing, Part

__all__ = ["gpu_listing", "gpu_row"]

NONE = GpuChoice("", "", 0)
"""No GPU: no kernels are generated."""
ROWS = (NONE, *GPU_CHOICES)
COLUMNS = (
    Column("", widest=1, narrowest=1),
    Column("GPU", widest=30, narrowest=10),
    Column("architecture", widest=12, narrowest=6),
    Column("memory", widest=8, narrowest=7, align="right"),
)


def gpu_listing(current: str | None) -> Listing:
    """Return the known GPUs, after a row for none; the current one is marked."""
    chosen = _choice(current)

    def cells_of(choice: GpuChoice) -> Cells:
        mark = Part("✓" if choice is chosen else "", "accent")
        if choice is NONE:
            return (mark, Part("no kernels", "name"), "", "")
        return (mark, Part(choice.name, "name"), choice.sm, f"{choice.memory_gib} GiB")

    rows = LazyRows(
        ROWS,
        lambda choice: f"gpu:{choice.name}",
        cells_of,
        lambda choice: f"{choice.name} {choice.facts}",
        lambda choice: Link(),
    )
    return Listing(COLUMNS, rows, "there is no GPU")


def gpu_row(current: str | None) -> int:
    """Return the row of a GPU, as the user named it; the first for none."""
    return ROWS.index(_choice(current))


def _choice(current: str | None) -> GpuChoice:
    """Return the GPU of that name, or the first that a short name fits; `NONE` without one."""
    wanted = _plain(current or "")
    return next((choice for choice in GPU_CHOICES if wanted and _plain(choice.name).startswith(wanted)), NONE)


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())
