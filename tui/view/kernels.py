"""Generated kernels and library calls: what each takes of its target, and its texts."""

from collections.abc import Iterator

from aotlens.report.kernel_texts import kernel_time, moved_bytes
from aotlens.report.places import text_of
from aotlens.report.records import Kernel, KernelConfig, Target
from aotlens.report.summary import counted, human_bytes
from tui.view.places import home_file, line_place, place
from tui.view.quantities import bar
from tui.view.rows import Cells, Column, Jump, LazyRows, Line, Link, Listing, Part

BAR_WIDTH = 6
NAME_WIDTH = 27
PREFIXES = ("torch.ops.", "extern_kernels.")
PHASES = {"forward": "fw", "backward": "bw", "inference": ""}
NO_KERNELS = "no kernels were generated: `--gpu h100` shows those for a GPU, which need not be there"

KERNEL_COLUMNS = (
    Column("kernel", widest=NAME_WIDTH, narrowest=20, grows=True),
    Column("in", widest=2, narrowest=2, drop=6),
    Column("µs", widest=7, narrowest=6, align="right", drop=5),
    Column("", widest=BAR_WIDTH, narrowest=BAR_WIDTH, drop=7),
    Column("moves", widest=9, narrowest=8, align="right", drop=4),
    Column("regs", widest=4, narrowest=4, align="right", drop=3),
    Column("spills", widest=9, narrowest=6, align="right", drop=2),
    Column("occ.", widest=5, narrowest=4, align="right", drop=3),
    Column("line", widest=16, narrowest=4, align="right"),
)


def kernel_key(target: Target, index: int) -> str:
    """`backward/triton_poi_fused_add_0/2`: the third launch of that kernel."""
    kernel = target.kernels[index]
    launch = sum(
        other.name == kernel.name and other.phase == kernel.phase for other in target.kernels[:index]
    )
    return f"{kernel.phase}/{kernel.name}/{launch}"


def kernel_link(kernel: Kernel) -> Link:
    return Link(kernel.spans)


def in_call_order(target: Target) -> tuple[int, ...]:
    return tuple(range(len(target.kernels)))


def by_cost(target: Target) -> tuple[int, ...]:
    """The dearest first; those of which no time is known at the end, in call order."""
    return tuple(sorted(in_call_order(target), key=lambda at: -(kernel_time(target.kernels[at]) or 0.0)))


def kernel_listing(target: Target, order: tuple[int, ...]) -> Listing:
    """Launches and library calls in that order."""
    home = home_file(target)
    longest = max((kernel_time(kernel) or 0.0 for kernel in target.kernels), default=0.0)

    def cells_of(at: int) -> Cells:
        return kernel_cells(target.kernels[at], longest, home)

    def text(at: int) -> str:
        kernel = target.kernels[at]
        return " ".join((kernel.name, kernel.phase, *kernel.nodes, *map(text_of, kernel.spans)))

    rows = LazyRows(
        order,
        lambda at: kernel_key(target, at),
        cells_of,
        text,
        lambda at: kernel_link(target.kernels[at]),
    )
    return Listing(KERNEL_COLUMNS, rows, NO_KERNELS)


def kernel_cells(kernel: Kernel, longest: float, home: str | None) -> Cells:
    time, moved = kernel_time(kernel), moved_bytes(kernel)
    chosen = kernel.configs[0] if kernel.configs else None
    share = bar(round(1000 * (time or 0.0)), round(1000 * longest), BAR_WIDTH)
    return (
        Part(
            short_name(kernel.name), "error" if kernel.error else "op" if kernel.kind == "library" else "name"
        ),
        PHASES[kernel.phase],
        f"{time:.2f}" if time is not None else "",
        Part(share, "accent"),
        human_bytes(moved) if moved is not None else "",
        str(kernel.registers) if kernel.registers is not None else "",
        Part(human_bytes(kernel.spill_bytes), "warning") if kernel.spill_bytes else "",
        f"{chosen.occupancy:.0%}" if chosen is not None else "",
        Part(place(kernel.spans[0] if kernel.spans else None, home), "place"),
    )


def short_name(name: str) -> str:
    """Its kind is told at the front, its number at the end; the middle goes first."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 11]}…{name[-10:]}"


def kernel_totals(target: Target) -> Line:
    """The headline of the tab."""
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
        yield f"{sum(measured):.1f} µs measured"
    if least:
        yield f"at least {sum(least):.1f} µs (an estimate)"
    if moved:
        yield f"moves {human_bytes(sum(moved))}"


# The details of one kernel.


def kernel_details(kernel: Kernel, target: Target) -> Iterator[Line]:
    """What stands below the table for the selected kernel."""
    home = home_file(target)
    kind = "library call" if kernel.kind == "library" else "generated"
    head = (Part(kernel.name, "title"), Part(f"  {kernel.phase}, {kernel.target}, {kind}", "dim"))
    yield Line(head, wrap=True)
    if kernel.error:
        yield Line((Part("!  ", "error"), Part(kernel.error.strip().splitlines()[-1], "error")), wrap=True)
    yield from cost_lines(kernel)
    yield from config_lines(kernel)
    for span in kernel.spans:
        parts = (Part("computes  ", "dim"), Part(text_of(span)), Part(f"  {line_place(span, home)}", "place"))
        yield Line(parts, Link((span,)))
    for name in kernel.nodes:
        node = (Part("node  ", "dim"), Part(name, "name"))
        yield Line(node, jump=Jump("graphs", f"{kernel.phase}/{name}"))


def cost_lines(kernel: Kernel) -> Iterator[Line]:
    moved = moved_bytes(kernel)
    facts = [
        f"{kernel.time_us:.2f} µs measured" if kernel.time_us is not None else "",
        f"at least {kernel.floor_us:.2f} µs, set by {kernel.bound}" if kernel.floor_us is not None else "",
        f"moves {human_bytes(moved)}" if moved is not None else "",
    ]
    told = " · ".join(filter(None, facts))
    if told:
        yield Line((Part("costs  ", "dim"), Part(told)), wrap=True)


def config_lines(kernel: Kernel) -> Iterator[Line]:
    """The chosen configuration, and those that it was chosen from."""
    for config in kernel.configs[:1]:
        yield Line((Part("uses  ", "dim"), Part(resources_text(config))), wrap=True)
        held = f"{config.occupancy:.0%} of the warps fit, limited by {config.limit}"
        grid = "x".join(map(str, config.grid)) if config.grid is not None else "symbolic"
        waves = f", {config.waves:.2g} waves" if config.waves is not None else ""
        yield Line((Part("runs  ", "dim"), Part(f"{held} · grid {grid}{waves}")), wrap=True)
    for config in kernel.configs[1:]:
        yield Line((Part("else  ", "dim"), Part(resources_text(config), "dim")), wrap=True)


def resources_text(config: KernelConfig) -> str:
    sizes = " ".join(f"{name}={size}" for name, size in config.blocks.items())
    spills = f", spills {human_bytes(config.spill_bytes)}" if config.spill_bytes else ""
    shared = f", {human_bytes(config.shared_bytes)} shared" if config.shared_bytes else ""
    return f"{sizes} {config.warps} warps · {config.registers} registers{spills}{shared}".lstrip()
