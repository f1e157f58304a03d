"""Kernels as the text report shows them: those that run here, and those for a GPU target."""

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from aotlens.model.report import Kernel, Span, Target
from aotlens.model.spans import line_of, lines_text, own_first, text_of
from aotlens.render.text.gpu import gpu_summary, unfused_lines
from aotlens.render.text.layout import GAP, KEEP, Page, Row, heading, paragraph, table
from aotlens.view.fold import Fold, fold, in_layer
from aotlens.view.kernels import (
    LONGEST_NAME,
    SHORTEST_NAME,
    block_sizes_text,
    gpu_kernels,
    grid_text,
    is_for_gpu,
    moved_bytes,
    short_name,
)
from aotlens.view.names import first_names
from aotlens.view.quantities import counted, human_bytes, human_us, percent, ratio
from aotlens.view.shorten import end_cut

FEW_KERNELS = 6
FEW_GPU_KERNELS = 6
MOST_LINES = 3
"""Lines of the user's that one kernel's row names."""
INDENT = " " * 6

FIGURES = ("floor", "measured", "read", "written", "FLOP/B", "regs", "occ.", "waves")
NUMBERS = frozenset(range(1, 9))
"""The columns of the table that hold numbers."""


def kernel_lines(target: Target, page: Page) -> Iterator[Text]:
    """Yield generated kernels and library calls; nothing when none were generated."""
    on_gpu, width = gpu_kernels(target.kernels), page.width
    here = [kernel for kernel in target.kernels if not is_for_gpu(kernel)]
    if here:
        yield heading("Kernels", str(len(here)))
        shown = (
            here
            if page.is_full
            else sorted(here, key=lambda kernel: -(moved_bytes(kernel) or 0))[:FEW_KERNELS]
        )
        yield from table([_row(kernel, _home(target)) for kernel in shown], width)
        yield from _rest(len(here) - len(shown), page)
        for text in target.measured:
            yield from paragraph(text, width, "  ", "dim")
    if here and on_gpu:
        yield Text()
    if on_gpu:
        yield from gpu_summary(target, page)
        yield from _gpu_lines(on_gpu, page)
        yield from unfused_lines(on_gpu, page)
        if target.gpu_assumptions:
            yield Text()
        for text in target.gpu_assumptions:
            yield from paragraph(f"assumed: {text}", width, "  ", "dim")


def _rest(count: int, page: Page) -> Iterator[Text]:
    if count:
        yield from paragraph(f"and {counted(count, 'more kernel')} ({page.rest})", page.width, "  ", "dim")


def _home(target: Target) -> str | None:
    """Return the file whose lines need no file name; None where nodes' names are shown instead."""
    return target.file if target.frontend == "trace" else None


def _row(kernel: Kernel, home: str | None) -> Row:
    moved = moved_bytes(kernel)
    traffic = f"moves {human_bytes(moved)}" if moved is not None else ""
    time = human_us(kernel.time_us) if kernel.time_us is not None else ""
    cells = (kernel.name, f"{kernel.phase}, {kernel.target}", traffic, time, _computes(kernel, home))
    return Row(cells, ("cyan", "", "", "", "dim"))


def _computes(kernel: Kernel, home: str | None) -> str:
    lines = lines_text(kernel.spans, home) if home is not None else ""
    return lines or ", ".join(kernel.nodes)


def _gpu_lines(kernels: list[Kernel], page: Page) -> Iterator[Text]:
    """One table for each phase, in call order; equal kernels of equal layers are one row."""
    width = page.width
    yield Text()
    order = "in call order" if page.is_full else "the costliest, in call order"
    yield heading("GPU kernels", f"{order}; floor: an estimate; ×: launches of equal layers")
    whole = sum(kernel.floor_us or 0 for kernel in kernels)
    for phase in dict.fromkeys(kernel.phase for kernel in kernels):
        folds = fold(
            [kernel for kernel in kernels if kernel.phase == phase],
            lambda kernel: in_layer(kernel.layer, kernel.name),
            lambda kernel: (_cells(kernel), _built(kernel), _expressions(kernel, page.home)),
        )
        large = _costliest(folds, page.least(whole), page)
        timed = any(kernel.time_us is not None for kernel in kernels)
        figures = tuple(name if timed or name != "measured" else "" for name in FIGURES)
        header = Row((phase, *figures), ("bold", *("dim" for _ in figures)))
        longest = _room_for_names([figures, *(_cells(group.first) for group in large)], width)
        yield from table([header, *(_gpu_row(group, page, longest) for group in large)], width, NUMBERS)
        yield from _rest(sum(len(group.items) for group in folds if group not in large), page)


def _costliest(folds: Sequence[Fold[Kernel]], worth_us: float, page: Page) -> list[Fold[Kernel]]:
    """Return the shown folds, in their order."""
    floors = {id(group): sum(kernel.floor_us or 0 for kernel in group.items) for group in folds}
    ranked = page.first(sorted(folds, key=lambda group: -floors[id(group)]), FEW_GPU_KERNELS)
    shown = {id(group) for group in ranked if floors[id(group)] >= worth_us or group.first.error}
    return [group for group in folds if id(group) in shown]


def _room_for_names(figures: list[tuple[str, ...]], width: int) -> int:
    """Return the columns of a line that the figures leave free."""
    widths = (max(map(len, column)) for column in zip(*figures, strict=True))
    return width - len(GAP) - sum(len(GAP) + size for size in widths if size)


def _gpu_row(group: Fold[Kernel], page: Page, longest: int) -> Row:
    kernel, width = group.first, page.width
    layers = group.label.removesuffix(f": {kernel.name}") if kernel.layer else ""
    where = " · ".join(filter(None, (layers, _expressions(kernel, page.home))))
    details = [Text(INDENT).append(end_cut(where, width - len(INDENT)), "dim")] if where else []
    built = _built(kernel)
    if built and page.is_full:
        details += paragraph(built, width, INDENT, "dim")
    if kernel.error:
        details += paragraph(kernel.error.strip().splitlines()[-1], width, INDENT, "red")
    longest -= len(group.times) + 1 if group.times else 0
    name = short_name(kernel.name, max(SHORTEST_NAME, min(LONGEST_NAME, longest)))
    name = " ".join(filter(None, (name, group.times)))
    return Row((name, *_cells(kernel)), ("cyan",), tuple(details))


def _cells(kernel: Kernel) -> tuple[str, ...]:
    """Return the figures of one kernel; empty where they are unknown."""
    costs = (
        human_us(kernel.floor_us) if kernel.floor_us is not None else "",
        human_us(kernel.time_us) if kernel.time_us is not None else "",
        human_bytes(kernel.bytes_read) if kernel.bytes_read is not None else "",
        human_bytes(kernel.bytes_written) if kernel.bytes_written is not None else "",
        ratio(kernel.intensity) if kernel.intensity is not None else "",
    )
    if not kernel.configs:
        return (*costs, "", "", "failed" if kernel.error else "")
    chosen = kernel.configs[0]
    waves = ratio(chosen.waves) if chosen.waves is not None else ""
    return (*costs, str(chosen.registers), percent(chosen.occupancy), waves)


def _built(kernel: Kernel) -> str:
    """Return the launch and its resources beyond registers; empty for a library call."""
    if not kernel.configs:
        return ""
    chosen = kernel.configs[0]
    comma = "," if chosen.grid_of_example else ""
    grid = f"{grid_text(chosen)}{comma} of {block_sizes_text(chosen) or 'one size'}"
    parts = [
        f"{grid}, {counted(chosen.warps, 'warp')}",
        _of_configs(kernel),
        f"{human_bytes(chosen.shared_bytes)} shared" if chosen.shared_bytes else "",
        f"spills {human_bytes(chosen.spill_bytes)} per thread" if chosen.spill_bytes else "",
        f"occupancy limited by {chosen.limit}" if chosen.occupancy < 1 else "",
    ]
    return " · ".join(part.replace(" ", KEEP) for part in parts if part)


def _of_configs(kernel: Kernel) -> str:
    """Return which of several configurations it is; empty for a single one."""
    if len(kernel.configs) == 1:
        return ""
    which = "1" if kernel.ran is None else "the fastest here"
    return f"{which} of {len(kernel.configs)} configurations"


def _expressions(kernel: Kernel, home: str | None) -> str:
    """Return the user's expressions of a kernel, the widest of each line, the costliest first; else why it
    exists."""
    if not kernel.spans:
        return kernel.added
    widest = sorted(_widest(kernel.spans), key=own_first)
    texts = [f"{line_of(span, home)}: {text_of(span)}" for span in widest]
    return first_names(texts, MOST_LINES)


def _widest(spans: Iterable[Span]) -> list[Span]:
    """For each line the widest expression."""
    lines: dict[tuple[str, int], Span] = {}
    for span in spans:
        known = lines.setdefault((span.file, span.line), span)
        lines[span.file, span.line] = max(known, span, key=lambda other: other.extent)
    return list(lines.values())
