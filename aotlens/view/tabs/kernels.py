"""Generated kernels and library calls as rows: their share of the target, and their texts.

Names, totals and times come from `aotlens.view.kernels`.
"""

from collections.abc import Iterator, Sequence

from aotlens.model.report import Kernel, KernelAccess, KernelConfig, LineCost, Span, Target, Unfused
from aotlens.model.spans import line_of, line_text, text_of, texts
from aotlens.view.kernels import (
    block_sizes_text,
    floor_text,
    grid_text,
    kernel_time,
    moved_bytes,
    occupancy_text,
    own_name,
    short_name,
)
from aotlens.view.plots import bar
from aotlens.view.progress import Phase
from aotlens.view.quantities import counted, human_bytes, human_flops, human_us, percent, ratio
from aotlens.view.tabs.tables.rows import Cells, Column, Jump, LazyRows, Line, Link, Listing, Part, size_part

BAR_WIDTH = 6
PHASES = {"forward": "fw", "backward": "bw", "inference": ""}
NO_KERNELS = "no kernels were generated: `--gpu h100` shows those for a GPU, which need not be present"

KERNEL_COLUMNS = (
    Column("kernel", widest=60, narrowest=20, grows=True),
    Column("in", widest=2, narrowest=2, drop=1),
    Column("µs", widest=7, narrowest=6, align="right", largest_first=True),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=7),
    Column("moves", widest=9, narrowest=8, align="right", drop=4, largest_first=True),
    Column("regs", widest=4, narrowest=4, align="right", drop=5, largest_first=True),
    Column("spills", widest=9, narrowest=6, align="right", drop=3, largest_first=True),
    Column("occ.", widest=5, narrowest=4, align="right", drop=5),
    Column("line", widest=40, narrowest=4, align="right"),
)


def kernel_key(kernel: Kernel) -> str:
    """`sm_90/backward/12`: the thirteenth call of the backward."""
    return f"{kernel.target}/{kernel.phase}/{kernel.call}"


def kernel_link(kernel: Kernel) -> Link:
    return Link(kernel.spans)


def kernel_listing(target: Target) -> Listing:
    """Launches and library calls in call order."""
    home = target.file
    longest = max((kernel_time(kernel) or 0.0 for kernel in target.kernels), default=0.0)
    text_at = texts()

    def cells_of(index: int) -> Cells:
        return kernel_cells(target.kernels[index], longest, home)

    def text(index: int) -> str:
        kernel = target.kernels[index]
        return " ".join((kernel.name, kernel.phase, *kernel.nodes, *map(text_at, kernel.spans)))

    rows = LazyRows(
        range(len(target.kernels)),
        lambda index: kernel_key(target.kernels[index]),
        cells_of,
        text,
        lambda index: kernel_link(target.kernels[index]),
    )
    return Listing(KERNEL_COLUMNS, rows, "")  # the headline says why there are none


def kernel_cells(kernel: Kernel, longest: float, home: str | None) -> Cells:
    time, moved = kernel_time(kernel), moved_bytes(kernel)
    chosen = kernel.configs[0] if kernel.configs else None
    share = bar(round(1000 * (time or 0.0)), round(1000 * longest), BAR_WIDTH)
    return (
        Part(
            own_name(kernel.name), "error" if kernel.error else "op" if kernel.kind == "library" else "name"
        ),
        PHASES[kernel.phase],
        f"{time:.2f}" if time is not None else "",
        Part(share, "accent"),
        size_part(moved) if moved is not None else "",
        str(kernel.registers) if kernel.registers is not None else "",
        size_part(kernel.spill_bytes, "warning") if kernel.spill_bytes else "",
        percent(chosen.occupancy) if chosen is not None else "",
        Part(line_of(kernel.spans[0] if kernel.spans else None, home), "place"),
    )


def kernel_totals(target: Target) -> Line:
    """Return the headline of the tab."""
    kernels = target.kernels
    if not kernels:
        return Line((Part(NO_KERNELS, "dim"),), wrap=True)
    calls = sum(kernel.kind == "library" for kernel in kernels)
    names = ", ".join(dict.fromkeys(kernel.target for kernel in kernels))
    parts = [Part(counted(len(kernels) - calls, "generated kernel"), "title")]
    parts.append(Part(f" and {counted(calls, 'library call')} on {names}"))
    parts += [Part(f" · {text}", "dim") for text in total_texts(kernels)]
    failed = sum(bool(kernel.error) for kernel in kernels)
    if failed:
        parts.append(Part(f" · {failed} failed", "error"))
    return Line(tuple(parts))


def total_texts(kernels: tuple[Kernel, ...]) -> Iterator[str]:
    measured = [kernel.time_us for kernel in kernels if kernel.time_us is not None]
    least = [kernel.floor_us for kernel in kernels if kernel.floor_us is not None]
    moved = [size for kernel in kernels if (size := moved_bytes(kernel)) is not None]
    if measured:
        yield f"{human_us(sum(measured))} measured"
    if least:
        yield floor_text(sum(least))
    if moved:
        yield f"moves {human_bytes(sum(moved))}"


LINE_COLUMNS = (
    Column("line", widest=40, narrowest=4, align="right"),
    Column("expression", widest=60, narrowest=16, grows=True),
    Column("µs", widest=8, narrowest=6, align="right", largest_first=True),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=4),
    Column("share", widest=5, narrowest=4, align="right", drop=3),
    Column("reads", widest=9, narrowest=8, align="right", drop=2, largest_first=True),
    Column("writes", widest=9, narrowest=8, align="right", drop=2, largest_first=True),
    Column("fw", widest=4, narrowest=2, align="right", drop=1),
    Column("bw", widest=4, narrowest=2, align="right", drop=1),
)


def line_key(line: LineCost) -> str:
    return f"line:{line.span.file}:{line.span.line}"


def line_listing(target: Target) -> Listing:
    """Return the user's lines on the GPU, the costliest first."""
    home, records = target.file, target.gpu_lines
    whole = sum(line.floor_us for line in records)
    most = max((line.floor_us for line in records), default=0.0)
    text_at = texts()

    def cells_of(line: LineCost) -> Cells:
        return (
            Part(line_of(line.span, home), "place"),
            Part(text_at(line.span)),
            f"{line.floor_us:.2f}",
            Part(bar(round(1000 * line.floor_us), round(1000 * most), BAR_WIDTH), "accent"),
            percent(line.floor_us / whole) if whole else "",
            size_part(line.bytes_read),
            size_part(line.bytes_written),
            str(line.kernels_forward or ""),
            str(line.kernels_backward or ""),
        )

    rows = LazyRows(
        records,
        line_key,
        cells_of,
        lambda line: text_at(line.span),
        lambda line: Link((line.span,)),
    )
    return Listing(LINE_COLUMNS, rows, "no costs by line: use `--gpu h100`")


def line_details(line: LineCost, target: Target) -> Iterator[Line]:
    """Yield the kernels that compute a part of a line, forward then backward."""
    link = Link((line.span,))
    yield Line(
        (Part(text_of(line.span), "title"), Part(f"  {line_text(line.span, target.file)}", "place")),
        link,
    )
    facts = (floor_text(line.floor_us), human_flops(line.flops) if line.flops else "")
    yield Line((Part("costs  ", "dim"), Part(" · ".join(filter(None, facts)))))
    for kernel in target.kernels:
        mine = [share for share in kernel.shares if is_on(share.span, line.span)]
        if mine:
            parts = (
                Part(f"{PHASES[kernel.phase]:>2}  ", "dim"),
                Part(short_name(kernel.name), "name"),
                Part(f"  {human_us(sum(share.floor_us for share in mine))}", "dim"),
            )
            yield Line(parts, kernel_link(kernel), Jump("kernels", kernel_key(kernel)))


def is_on(span: Span, line: Span) -> bool:
    """Return True if an expression starts on the first line of the other."""
    return (span.file, span.line) == (line.file, line.line)


# The details of one kernel.


def kernel_details(kernel: Kernel, target: Target) -> Iterator[Line]:
    """Yield the lines below the table for the selected kernel."""
    home = target.file
    kind = "library call" if kernel.kind == "library" else "generated"
    head = (Part(kernel.name, "title"), Part(f"  {kernel.phase}, {kernel.target}, {kind}", "dim"))
    yield Line(head, wrap=True)
    if kernel.error:
        yield Line((Part("!  ", "error"), Part(kernel.error.strip().splitlines()[-1], "error")), wrap=True)
    yield from cost_lines(kernel)
    shares = {share.span: share for share in kernel.shares}
    for span in kernel.spans:
        share = f"  {human_us(shares[span].floor_us)} of it" if len(shares) > 1 and span in shares else ""
        where = Part(f"  {line_text(span, home)}", "place")
        yield Line((Part("computes  ", "dim"), Part(text_of(span)), where, Part(share, "dim")), Link((span,)))
    for apart in kernel.unfused:
        yield from unfused_lines(apart, kernel)
    yield from config_lines(kernel)
    if kernel.added:
        yield Line((Part("added  ", "dim"), Part(kernel.added)), wrap=True)
    for access in kernel.accesses:
        yield access_line(access, kernel)
    for name in kernel.nodes:
        node = (Part("node  ", "dim"), Part(name, "name"))
        yield Line(node, jump=Jump("graphs", f"{kernel.phase}/{name}"))


def access_line(access: KernelAccess, kernel: Kernel) -> Line:
    """Return a value that it reads or writes, and the bytes that the memory moves for it if those are
    more."""
    wasted = access.sector_bytes > access.bytes
    more = f", {human_bytes(access.sector_bytes)} are read for it" if wasted else ""
    parts = (
        Part("writes  " if access.written else "reads  ", "dim"),
        Part(access.value or "a value of its own", "name" if access.value else "dim"),
        Part(f"  {human_bytes(access.bytes)}"),
        Part(more, "warning"),
    )
    jump = Jump("graphs", f"{kernel.phase}/{access.value}") if access.value else None
    return Line(parts, Link((access.span,) if access.span else ()), jump)


def unfused_lines(apart: Unfused, kernel: Kernel) -> Iterator[Line]:
    """Yield why an earlier kernel that shares a value is not fused with this one."""
    shared = apart.value or "a value"
    what = f"which writes {shared}" if apart.is_produced else f"which reads {shared} too"
    parts = (
        Part("not fused with  ", "dim"),
        Part(short_name(apart.kernel), "name"),
        Part(f", {what} ({human_bytes(apart.bytes)}): {apart.reason}"),
    )
    jump = Jump("kernels", f"{kernel.target}/{kernel.phase}/{apart.call}")
    yield Line(parts, Link((apart.span,) if apart.span else ()), jump, wrap=True)


def cost_lines(kernel: Kernel) -> Iterator[Line]:
    least = kernel.floor_us
    facts = [
        f"{human_us(kernel.time_us)} measured" if kernel.time_us is not None else "",
        f"{floor_text(least)}, set by {kernel.bound}" if least is not None else "",
        f"reads {human_bytes(kernel.bytes_read)}" if kernel.bytes_read is not None else "",
        f"writes {human_bytes(kernel.bytes_written)}" if kernel.bytes_written is not None else "",
        human_flops(kernel.flops) if kernel.flops else "",
        f"{ratio(kernel.intensity)} for each byte" if kernel.intensity else "",
    ]
    text = " · ".join(filter(None, facts))
    if text:
        yield Line((Part("costs  ", "dim"), Part(text)), wrap=True)


def config_lines(kernel: Kernel) -> Iterator[Line]:
    """Yield the chosen configuration, then the others."""
    for config in kernel.configs[:1]:
        yield Line((Part("uses  ", "dim"), Part(resources_text(config))), wrap=True)
        held = f"{occupancy_text(config)}, limited by {config.limit}"
        waves = f", {ratio(config.waves)} waves" if config.waves is not None else ""
        yield Line((Part("runs  ", "dim"), Part(f"{held} · {grid_text(config)}{waves}")), wrap=True)
    for config in kernel.configs[1:]:
        yield Line((Part("else  ", "dim"), Part(resources_text(config), "dim")), wrap=True)


def resources_text(config: KernelConfig) -> str:
    spills = f", spills {human_bytes(config.spill_bytes)}" if config.spill_bytes else ""
    shared = f", {human_bytes(config.shared_bytes)} shared" if config.shared_bytes else ""
    launch = f"{block_sizes_text(config)} {config.warps} warps".lstrip()
    return f"{launch} · {config.registers} registers{spills}{shared}"


def compiling_lines(phase: Phase, names: Sequence[str]) -> Iterator[Line]:
    """Yield the state of a trace that generates kernels, and the kernels so far, the newest first."""
    yield Line((Part("› ", "accent"), Part(str(phase))))
    for name in reversed(names):
        yield Line((Part("  + ", "ok"), Part(name, "name")))
