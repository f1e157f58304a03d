"""Totals of GPU kernels in the text report: by phase, by line, and pairs that are not fused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rich.text import Text

from aotlens.model.kernels import Kernel, LineCost, PhaseCost, Unfused
from aotlens.model.report import Span, Target
from aotlens.model.spans import line_of, own_first, shown_path, text_of
from aotlens.render.text.layout import Page, Row, heading, paragraph, table
from aotlens.view.kernels import known_sum, short_name
from aotlens.view.quantities import counted, human_bytes, human_flops, human_us, multiplied, percent

MOST_LINES = 10
FEW_LINES = 5
FEW_PAIRS = 3
MOST_PAIRS = 10
"""Pairs of kernels that are not fused, of those that share most."""
SMALL_SHARE = 0.005
"""Pairs that share less of all moved bytes are only counted."""

ESTIMATE = (
    "floor: an estimate of the minimum time, from peak bandwidth and peak arithmetic; launches, latency"
    " and idle parts of the GPU are not included, and data in the L2 cache may be faster"
)


def gpu_summary(target: Target, page: Page) -> Iterator[Text]:
    """Yield the sums by phase, and the costliest lines."""
    totals, width = target.gpu_totals, page.width
    name = f"{target.gpu_name} ({totals[0].target})" if target.gpu_name else totals[0].target
    yield heading(f"GPU, {name}", "predicted, one call; sizes of the example")
    timed = "measured" if any(total.time_us is not None for total in totals) else ""
    figures = ("read", "written", "FLOP", "floor", timed, "")
    header = Row(("", "kernels", "library calls", *figures), ("dim",) * 8)
    rows = [_total(total, total.phase) for total in totals]
    if len(totals) > 1:
        rows.append(_total(_together(totals), "together"))
    yield from table([header, *rows], width, frozenset(range(1, 8)))
    if any(total.unknown for total in totals):
        count = counted(sum(total.unknown for total in totals), "call")
        unknown = f"not included: {count} with data-dependent sizes or unknown traffic"
        yield from paragraph(unknown, width, "  ", "dim")
    if any(total.unknown_flops for total in totals):
        count = counted(sum(total.unknown_flops for total in totals), "call")
        lacking = f"the FLOP and the arithmetic floor do not include {count} whose arithmetic is unknown"
        yield from paragraph(lacking, width, "  ", "dim")
    yield from paragraph(ESTIMATE, width, "  ", "dim")
    whole = sum(total.floor_us for total in totals)
    if target.gpu_lines and whole:
        yield Text()
        yield from _line_table(target.gpu_lines, whole, page)


def _together(totals: tuple[PhaseCost, ...]) -> PhaseCost:
    return replace(
        totals[0],
        generated=sum(total.generated for total in totals),
        library=sum(total.library for total in totals),
        bytes_read=sum(total.bytes_read for total in totals),
        bytes_written=sum(total.bytes_written for total in totals),
        flops=sum(total.flops for total in totals),
        floor_us=sum(total.floor_us for total in totals),
        time_us=known_sum(total.time_us for total in totals),
    )


def _total(total: PhaseCost, name: str) -> Row:
    cells = (
        name,
        str(total.generated),
        str(total.library),
        human_bytes(total.bytes_read),
        human_bytes(total.bytes_written),
        human_flops(total.flops),
        human_us(total.floor_us),
        human_us(total.time_us) if total.time_us is not None else "",
        "",
    )
    return Row(cells)


def _line_table(lines: tuple[LineCost, ...], whole: float, page: Page) -> Iterator[Text]:
    """Yield the costliest lines, those of the user's own files first."""
    most = page.most(MOST_LINES, FEW_LINES)
    shown = sorted(lines[:most], key=lambda line: own_first(line.span))
    count = f"{len(shown)} of {len(lines)}" if len(lines) > len(shown) else str(len(lines))
    files = {line.span.file for line in shown}
    home = shown[0].span.file if len(files) == 1 else page.home
    where = f" in {shown_path(shown[0].span.file)}" if len(files) == 1 else ""
    yield heading("Costliest lines", f"{count}{where}; a kernel of several lines is divided among them")
    timed = "measured" if any(line.time_us is not None for line in lines) else ""
    training = any(line.kernels_backward for line in lines)
    backward = "bw" if training else ""
    header = Row(("floor", "", timed, "read", "written", "FLOP", "fw", backward, "line"), ("dim",) * 9)
    rows = [
        Row(
            (
                human_us(line.floor_us),
                percent(line.floor_us / whole),
                human_us(line.time_us) if line.time_us is not None else "",
                human_bytes(line.bytes_read),
                human_bytes(line.bytes_written),
                human_flops(line.flops).removesuffix("FLOP").rstrip(),
                str(line.kernels_forward),
                str(line.kernels_backward) if training else "",
                f"{line_of(line.span, home)}: {text_of(line.span)}",
            ),
            ("", "dim"),
            clip=True,
        )
        for line in shown
    ]
    yield from table([header, *rows], page.width, frozenset(range(8)))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two kernels that share a value; equal for equal pairs of other layers."""

    code: str
    phase: str
    first: str
    second: str
    bytes: int
    is_produced: bool
    span: Span | None
    value: str


def unfused_lines(kernels: list[Kernel], page: Page) -> Iterator[Text]:
    """Generated kernels that share values and are not one, by reason, those that share most first."""
    width = page.width
    pairs: dict[_Pair, list[Unfused]] = {}
    library = 0
    for kernel in kernels:
        for link in kernel.unfused:
            library += link.code == "library"
            if link.code != "library":
                pairs.setdefault(_pair(link, kernel), []).append(link)
    if not pairs:
        return
    beside = f"; {counted(library, 'value')} more between them and library calls" if library else ""
    yield Text()
    yield heading("Not fused", f"{counted(sum(map(len, pairs.values())), 'pair')} of kernels{beside}")
    shared = {pair: pair.bytes * len(group) for pair, group in pairs.items()}
    worth = SMALL_SHARE * sum(kernel.bytes_moved or 0 for kernel in kernels)
    shown = [pair for pair in sorted(shared, key=lambda pair: -shared[pair]) if shared[pair] >= worth]
    shown = shown[: page.most(MOST_PAIRS, FEW_PAIRS)]
    for code in dict.fromkeys(pair.code for pair in shown):
        group = [pair for pair in shown if pair.code == code]
        torch_reasons = dict.fromkeys(link.torch for pair in group for link in pairs[pair] if link.torch)
        torch = f" (torch: {', '.join(torch_reasons)})" if torch_reasons else ""
        yield from paragraph(f"{pairs[group[0]][0].reason}{torch}", width, "  ")
        yield from table([_pair_row(pair, len(pairs[pair]), page) for pair in group], width)
    rest = [pair for pair in pairs if pair not in shown]
    if rest:
        count = sum(len(pairs[pair]) for pair in rest)
        text = _unlisted(count, sum(shared[pair] for pair in rest), bool(shown))
        yield from paragraph(text, width, "  ", "dim")


def _unlisted(count: int, shared_bytes: int, is_rest: bool) -> str:
    """Return the text about pairs that are not listed: those that share less than others, or all."""
    size = f"{human_bytes(shared_bytes)}{' together' if count > 1 else ''}"
    if not is_rest:
        return f"they share little: {size}"
    return f"and {counted(count, 'pair')} that share{'s' if count == 1 else ''} less, {size}"


def _pair(link: Unfused, kernel: Kernel) -> _Pair:
    value = "" if link.span is not None else link.value
    return _Pair(
        link.code, kernel.phase, link.kernel, kernel.name, link.bytes, link.is_produced, link.span, value
    )


def _pair_row(pair: _Pair, times: int, page: Page) -> Row:
    how = "written, then read" if pair.is_produced else "read by both"
    value = f"{line_of(pair.span, page.home)}: {text_of(pair.span)}" if pair.span is not None else pair.value
    names = f"{short_name(pair.first)} → {short_name(pair.second)} ({pair.phase})"
    return Row(
        (
            f"  {human_bytes(pair.bytes)} {multiplied(times)}".rstrip(),
            how,
            value or "a value that exists only in generated code",
        ),
        ("yellow", "dim"),
        tuple(paragraph(names, page.width, " " * 8, "dim")),
        clip=True,
    )
