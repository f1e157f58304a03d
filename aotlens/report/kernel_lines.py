"""Kernels as the text report shows them: those that run here, and those for a GPU target."""

from collections.abc import Iterator

from rich.text import Text

from aotlens.report.layout import Row, heading, paragraph, table
from aotlens.report.places import text_of
from aotlens.report.records import Kernel, KernelConfig, Target
from aotlens.report.summary import counted, human_bytes

LONGEST_NAME = 38
MOST_PLACES = 3
"""Lines of the user's that one kernel's row names."""

FIGURES = ("floor", "moves", "regs", "spills", "shared", "occ.", "grid", "blocks")
NUMBERS = frozenset(range(1, 8))
"""Which columns of the table hold numbers."""


def kernel_lines(target: Target, width: int) -> Iterator[Text]:
    """Generated kernels and library calls; nothing when none were generated."""
    on_gpu = [kernel for kernel in target.kernels if kernel.target.startswith("sm_")]
    here = [kernel for kernel in target.kernels if not kernel.target.startswith("sm_")]
    if here:
        yield heading("Kernels", str(len(here)))
        yield from table([_row(kernel) for kernel in here], width)
    if here and on_gpu:
        yield Text()
    if on_gpu:
        yield from _gpu_lines(on_gpu, target.gpu_assumptions, width)


def _row(kernel: Kernel) -> Row:
    moved = [size for size in (kernel.bytes_read, kernel.bytes_written) if size is not None]
    traffic = f"moves {human_bytes(sum(moved))}" if moved else ""
    time = f"{kernel.time_us:.1f} µs" if kernel.time_us is not None else ""
    cells = (kernel.name, f"{kernel.phase}, {kernel.target}", traffic, time, ", ".join(kernel.nodes))
    return Row(cells, ("cyan", "", "", "", "dim"))


def _gpu_lines(kernels: list[Kernel], assumptions: tuple[str, ...], width: int) -> Iterator[Text]:
    """One table for each phase, in call order."""
    calls = sum(kernel.kind == "library" for kernel in kernels)
    made = counted(len(kernels) - calls, "generated kernel")
    yield heading(
        f"GPU kernels, {kernels[0].target}",
        f"{made}, {counted(calls, 'library call')}; predicted; floor: an estimate",
    )
    for phase in dict.fromkeys(kernel.phase for kernel in kernels):
        rows = [_gpu_row(kernel, width) for kernel in kernels if kernel.phase == phase]
        header = Row((phase, *FIGURES), ("bold", *("dim" for _ in FIGURES)))
        yield from table([header, *rows], width, NUMBERS)
    for text in assumptions:
        yield from paragraph(f"assumed: {text}", width, "  ", "dim")


def _gpu_row(kernel: Kernel, width: int) -> Row:
    details = [*paragraph(_expressions(kernel), width, "      ", "dim")]
    if kernel.error:
        details += paragraph(kernel.error.strip().splitlines()[-1], width, "      ", "red")
    costs = (
        f"{kernel.floor_us:.2f} µs" if kernel.floor_us is not None else "",
        human_bytes(kernel.bytes_moved) if kernel.bytes_moved is not None else "",
    )
    if not kernel.configs:
        last = "failed" if kernel.error else "library call"
        return Row((_short(kernel.name), *costs, *("",) * 5, last), ("cyan",), tuple(details))
    chosen = kernel.configs[0]
    cells = (
        _short(kernel.name),
        *costs,
        str(chosen.registers),
        human_bytes(chosen.spill_bytes) if chosen.spill_bytes else "-",
        human_bytes(chosen.shared_bytes) if chosen.shared_bytes else "-",
        f"{chosen.occupancy:.0%}",
        "x".join(map(str, chosen.grid)) if chosen.grid is not None else "symbolic",
        _blocks(chosen, len(kernel.configs)),
    )
    return Row(cells, ("cyan", "", "", "", "yellow"), tuple(details))


def _short(name: str) -> str:
    """A kernel's name without its middle: its kind is told at the front, its number at the end."""
    name = name.removeprefix("torch.ops.")
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 13]}…{name[-12:]}"


def _blocks(config: KernelConfig, choices: int) -> str:
    """The chosen block sizes, and of how many choices."""
    sizes = " ".join(f"{name}={size}" for name, size in config.blocks.items())
    of = f" (1 of {choices})" if choices > 1 else ""
    return f"{sizes} {config.warps}w{of}".lstrip()


def _expressions(kernel: Kernel) -> str:
    """The user's expressions that it computes, the first few."""
    texts = [f"{span.line}: {text_of(span)}" for span in sorted(kernel.spans, key=lambda span: span.line)]
    more = f" and {len(texts) - MOST_PLACES} more" if len(texts) > MOST_PLACES else ""
    return ", ".join(texts[:MOST_PLACES]) + more
