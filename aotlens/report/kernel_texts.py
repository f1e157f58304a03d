"""What every front end says of a kernel: its texts, what it moves, and its time.  Standard library only."""

from collections.abc import Sequence

from aotlens.report.kernel_totals import is_for_gpu
from aotlens.report.records import Kernel

TRITON = "triton"
"""What the first of a GPU kernel's texts is called; a CPU kernel has `source`."""


def kernel_texts(kernel: Kernel, kernels: Sequence[Kernel]) -> tuple[tuple[str, str], ...]:
    """Every language that it is there in, with the text; a later launch has those of the first."""
    same = (row for row in kernels if (row.name, row.phase) == (kernel.name, kernel.phase))
    first = next(same, kernel)
    written = TRITON if is_for_gpu(kernel) else "source"
    own = ((written, first.source),) if first.source else ()
    return (*own, *((text.language, text.text) for text in first.texts))


def moved_bytes(kernel: Kernel) -> int | None:
    """Read and written by one launch; None where nothing is known."""
    if kernel.bytes_moved is not None:
        return kernel.bytes_moved
    known = [size for size in (kernel.bytes_read, kernel.bytes_written) if size is not None]
    return sum(known) if known else None


def kernel_time(kernel: Kernel) -> float | None:
    """Microseconds: measured where it ran, else the least that the target could take."""
    return kernel.time_us if kernel.time_us is not None else kernel.floor_us
