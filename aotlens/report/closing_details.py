"""Each graph of a function, for the verbose closing table of `aotlens run`."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from aotlens.report.layout import KEEP, paragraph
from aotlens.report.records import Reuse, Target, Verdict
from aotlens.report.summary import (
    applied_steps,
    counted,
    graph_counts,
    human_bytes,
    human_ms,
    signature,
    timings_summary,
)

__all__ = ["detail_lines", "reuse_text", "timings_text"]

_NAME = " " * 6
_INDENT = " " * 10


def timings_text(target: Target) -> str:
    """The compile time by stage, each figure kept beside its stage."""
    return timings_summary(target).replace(" ", KEEP).replace(f"{KEEP}·{KEEP}", f"{KEEP}· ")


def reuse_text(reuse: Reuse) -> str:
    """What the cache of compiled results did."""
    match reuse.outcome:
        case "hit":
            took = f": compiling it took {human_ms(reuse.cold_ms)}" if reuse.cold_ms is not None else ""
            return f"from the cache{took}"
        case "miss":
            return "kept in the cache for the next run"
        case _:
            return f"not kept in the cache: {reuse.reason}"


def detail_lines(graphs: Sequence[tuple[Target, Verdict | None]], width: int) -> Iterator[Text]:
    """Each graph: its arguments and size, its wrapper steps, its times, the cache and the verdict."""
    for target, verdict in graphs:
        yield from paragraph(_graph_text(target), width, _NAME, "cyan")
        steps = applied_steps(target)
        names = f": {', '.join(step.name for step in steps)}" if steps else ""
        yield from paragraph(f"{counted(len(steps), 'wrapper step')}{names}", width, _INDENT)
        if target.timings_ms:
            yield from paragraph(timings_text(target), width, _INDENT, "dim")
        if target.reuse is not None:
            yield from paragraph(reuse_text(target.reuse), width, _INDENT, "dim")
        if verdict is not None and len(graphs) > 1:
            for line in (verdict.headline, *verdict.details):
                yield from paragraph(line, width, _INDENT)


def _graph_text(target: Target) -> str:
    """`Block after line 14, compilation 2, (f32[8, 16]): training, 3 fw / 7 bw nodes, saves 24 B`."""
    compilation = f", compilation {target.graph.compilation + 1}" if target.graph else ""
    saved = f", saves {human_bytes(target.partition.saved_bytes)}" if target.partition else ""
    return f"{target.name}{compilation}, {signature(target)}: {target.mode}, {graph_counts(target)}{saved}"
