"""The Overview's lines about a GPU: sums, the costliest lines, what prevents CUDA graphs."""

from collections.abc import Iterator

from aotlens.model.cuda_graphs import CudaGraph
from aotlens.model.report import Target
from aotlens.model.spans import line_text, text_of
from aotlens.view.cuda_graphs import EFFECTS, VERDICTS, what_blocks
from aotlens.view.kernels import floor_text
from aotlens.view.quantities import counted, human_bytes, human_us, percent
from aotlens.view.tabs.kernels import line_key
from aotlens.view.tabs.tables.rows import Jump, Line, Link, Part

MOST_LINES = 3
MOST_BLOCKERS = 4


def gpu_parts(target: Target) -> Iterator[tuple[str, tuple[Part, ...], Jump | None]]:
    """Facts with their labels; none without a GPU target."""
    totals = target.gpu_totals
    if totals:
        made, calls = sum(cost.generated for cost in totals), sum(cost.library for cost in totals)
        least = sum(cost.floor_us for cost in totals)
        moved = sum(cost.bytes_read + cost.bytes_written for cost in totals)
        parts = (
            Part(totals[0].target, "accent"),
            Part(f" · {counted(made, 'generated kernel')}, {counted(calls, 'library call')}"),
            Part(f" · {floor_text(least)} · moves {human_bytes(moved)}", "dim"),
        )
        yield "gpu", parts, Jump("kernels")
    elif target.gpu_error:
        yield "gpu", (Part(target.gpu_error, "error"),), None
    if target.cuda_graph is not None:
        phases = target.cuda_graph.phases.items()
        verdicts = ", ".join(f"{phase} {VERDICTS[verdict]}" for phase, verdict in phases)
        blockers = target.cuda_graph.blockers
        yield (
            "cuda",
            (Part(verdicts), Part(f" · {counted(len(blockers), 'reason')}" if blockers else "")),
            None,
        )


def costly_lines(target: Target) -> Iterator[Line]:
    """Yield the lines that take most of the GPU time."""
    whole, home = sum(line.floor_us for line in target.gpu_lines), target.file
    for line in target.gpu_lines[:MOST_LINES]:
        share = f"{percent(line.floor_us / whole):>5}  " if whole else ""
        parts = (
            Part(f"{human_us(line.floor_us):>9}{share}", "accent"),
            Part(text_of(line.span), "name"),
            Part(f"  {line_text(line.span, home)}", "place"),
        )
        yield Line(parts, Link((line.span,)), Jump("kernels", line_key(line)))


def blocker_lines(cuda_graph: CudaGraph | None, target: Target) -> Iterator[Line]:
    """Yield each reason why CUDA graphs cannot record the whole target, with its first line."""
    blockers = cuda_graph.blockers if cuda_graph is not None else ()
    home = target.file
    for blocker in blockers[:MOST_BLOCKERS]:
        spans = tuple(site.span for site in blocker.sites)
        role = "warning" if blocker.effect in ("prevents", "splits") else "dim"
        parts = (
            Part(f"{EFFECTS[blocker.effect]}  ", role),
            Part(what_blocks(blocker), "name"),
            Part(f"  {line_text(spans[0], home)}" if spans else "", "place"),
            Part(f"  {blocker.reason}", "dim"),
        )
        yield Line(parts, Link(spans[:1], spans[1:]), wrap=True)
    if len(blockers) > MOST_BLOCKERS:
        yield Line((Part(f"and {counted(len(blockers) - MOST_BLOCKERS, 'more reason')}", "dim"),))
