"""The short table that `aotlens run` ends with."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from aotlens.report.layout import KEEP, WIDTH, Row, page_width, paragraph, print_lines, table, to_text
from aotlens.report.places import place
from aotlens.report.records import Reuse, Target, Verdict
from aotlens.report.summary import (
    applied_steps,
    counted,
    graph_counts,
    human_bytes,
    human_ms,
    timings_summary,
    total_ms,
)

_INDENT = "      "


def print_closing(
    targets: Sequence[Target], console: Console, verdicts: Sequence[Verdict | None] = ()
) -> None:
    """Print the table; `verdicts` stand in the order of the targets, None where nothing was compared."""
    print_lines(closing_lines(targets, page_width(console), verdicts), console)


def closing_text(
    targets: Sequence[Target], verdicts: Sequence[Verdict | None] = (), width: int = WIDTH
) -> str:
    """The table as plain text."""
    return to_text(closing_lines(targets, width, verdicts))


def closing_lines(
    targets: Sequence[Target], width: int, verdicts: Sequence[Verdict | None] = ()
) -> Iterator[Text]:
    """A title, then one row a target with its wrapper steps, times and verdict below."""
    title = f"aotlens: {counted(len(targets), 'target')}"
    took = f", compiled in {human_ms(total_ms(targets))}" if targets else ""
    yield Text.assemble((title, "bold"), took)
    padded = [*verdicts, *[None] * (len(targets) - len(verdicts))]
    rows = [_row(target, verdict, width) for target, verdict in zip(targets, padded, strict=True)]
    yield from table(rows, width)


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


def _row(target: Target, verdict: Verdict | None, width: int) -> Row:
    saved = f"saves {human_bytes(target.partition.saved_bytes)}" if target.partition else ""
    where = place(target.span) if target.span else ""
    cells = (target.name, where, target.mode, graph_counts(target), saved)
    return Row(cells, ("bold cyan", "dim", "", "", "yellow"), tuple(_below(target, verdict, width)))


def _below(target: Target, verdict: Verdict | None, width: int) -> Iterator[Text]:
    steps = applied_steps(target)
    names = f": {', '.join(step.name for step in steps)}" if steps else ""
    yield from paragraph(f"{counted(len(steps), 'wrapper step')}{names}", width, _INDENT)
    if target.timings_ms:
        yield from paragraph(timings_text(target), width, _INDENT, "dim")
    if target.reuse is not None:
        yield from paragraph(reuse_text(target.reuse), width, _INDENT, "dim")
    if verdict:
        word, style = _word(verdict)
        first, *more = verdict.text.splitlines()
        yield from paragraph(f"{word}: {first}", width, _INDENT, style)
        for line in more:
            yield from paragraph(line, width, _INDENT)


def _word(verdict: Verdict) -> tuple[str, str]:
    """The verdict's word and its style."""
    if verdict.stopped:
        return "unchecked", "bold yellow"
    return ("verified", "green") if verdict.ok else ("MISMATCH", "bold red")
