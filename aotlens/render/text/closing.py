"""The table that ends `aotlens run`: code that was not compiled or verified, then a row per function."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from aotlens.model.dynamo import Dynamo
from aotlens.model.eager import NotCompiled
from aotlens.model.report import CacheAnswer, Target, Verdict
from aotlens.model.spans import location, shown_path
from aotlens.render.text.layout import (
    KEEP,
    WIDTH,
    Row,
    heading,
    page_width,
    paragraph,
    path_end,
    print_lines,
    table,
    to_text,
)
from aotlens.render.text.why import short_dynamo_lines
from aotlens.view.functions import Function, by_function
from aotlens.view.names import first_names
from aotlens.view.quantities import (
    applied_steps,
    bytes_range,
    counted,
    graph_counts,
    human_bytes,
    human_ms,
    percent,
    signature,
    timings_summary,
    total_ms,
)
from aotlens.view.recompiled_values import recompiled_values, value_words

__all__ = ["ATTENTION", "Closing", "closing_lines", "closing_text", "print_closing", "timings_text"]

_NAME = " " * 6
_DETAIL_INDENT = " " * 10


def timings_text(target: Target) -> str:
    """Return the compile time by stage, each figure on the line of its stage."""
    return timings_summary(target).replace(" ", KEEP).replace(f"{KEEP}·{KEEP}", f"{KEEP}· ")


def cache_text(answer: CacheAnswer) -> str:
    """Return the use of the cache of compiled results."""
    match answer.outcome:
        case "hit":
            took = f": compiling it took {human_ms(answer.cold_ms)}" if answer.cold_ms is not None else ""
            return f"from the cache{took}"
        case "miss":
            return "stored in the cache for the next run"
        case _:
            return f"not cached: {answer.reason}"


def detail_lines(graphs: Sequence[tuple[Target, Verdict | None]], width: int) -> Iterator[Text]:
    """Each graph: its arguments and size, its wrapper steps, its times, the cache and the verdict."""
    for target, verdict in graphs:
        yield from paragraph(_graph_text(target), width, _NAME, "cyan")
        steps = applied_steps(target)
        names = f": {', '.join(step.name for step in steps)}" if steps else ""
        yield from paragraph(f"{counted(len(steps), 'wrapper step')}{names}", width, _DETAIL_INDENT)
        if target.timings_ms:
            yield from paragraph(timings_text(target), width, _DETAIL_INDENT, "dim")
        if target.cache_answer is not None:
            yield from paragraph(cache_text(target.cache_answer), width, _DETAIL_INDENT, "dim")
        if verdict is not None and len(graphs) > 1:
            for line in (verdict.headline, *verdict.details):
                yield from paragraph(line, width, _DETAIL_INDENT)


def _graph_text(target: Target) -> str:
    """`Block after line 14, compilation 2, (f32[8, 16]): training, 3 fw / 7 bw nodes, saves 24 B`."""
    compilation = f", compilation {target.graph.compilation + 1}" if target.graph else ""
    saved = f", saves {human_bytes(target.partition.saved_bytes)}" if target.partition else ""
    return f"{target.name}{compilation}, {signature(target)}: {target.mode}, {graph_counts(target)}{saved}"


ATTENTION = ("Not compiled", "Differs from eager", "Not verified", "Recompiled")
"""The sections above the functions, about code that needs attention."""
_LONGEST_PATH = 40
"""Columns of a path in the row of a function; a longer one shows its end, which differs between files."""
_INDENT = "      "
_MOST_NAMES = 3
"""Names of arguments that differed between compilations."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The content of the table."""

    targets: Sequence[Target]
    verdicts: Sequence[Verdict | None] = ()
    """In the order of the targets, None where nothing was compared."""
    not_compiled: Sequence[NotCompiled] = ()
    dynamo: Dynamo | None = None
    """Dynamo's records; None where it compiled nothing."""
    is_verbose: bool = False
    """True if each graph is shown with its wrapper steps and times."""

    def verdict(self, target: Target) -> Verdict | None:
        position = next(index for index, other in enumerate(self.targets) if other is target)
        return self.verdicts[position] if position < len(self.verdicts) else None


def print_closing(closing: Closing, console: Console) -> None:
    """Print the table; colour only where the console has it."""
    print_lines(closing_lines(closing, page_width(console)), console)


def closing_text(closing: Closing, width: int = WIDTH) -> str:
    """Return the table as plain text."""
    return to_text(closing_lines(closing, width))


def closing_lines(closing: Closing, width: int) -> Iterator[Text]:
    """Yield a title; code not compiled, recompiled, or not equal to eager; then the functions by time."""
    functions = sorted(by_function(closing.targets), key=lambda function: -function.elapsed_ms)
    yield _title(closing, functions)
    attention = (
        _not_compiled_rows(closing.not_compiled, width),
        _verdict_rows(closing, functions, "differs", width),
        _verdict_rows(closing, functions, "not verified", width),
        _recompiled_rows(closing.dynamo, functions, width),
    )
    sections = [(title, rows) for title, rows in zip(ATTENTION, attention, strict=True) if rows]
    for title, rows in sections:
        yield heading(title)
        yield from table(rows, width)
    if sections and functions:
        yield heading("Compiled")
    yield from table(_function_rows(closing, functions, width), width, frozenset({2, 3}))
    if closing.dynamo is not None:
        yield from short_dynamo_lines(closing.dynamo, width)
    yield from _cache_lines(closing.targets, width)


def _title(closing: Closing, functions: Sequence[Function]) -> Text:
    if not functions:
        return Text("aotlens: nothing was compiled", "bold")
    graphs = sum(len(function.graphs) for function in functions)
    names = counted(len(functions), "function")
    in_graphs = f" in {counted(graphs, 'graph')}" if graphs != len(functions) else ""
    return Text.assemble(
        (f"aotlens: {names}{in_graphs}", "bold"), f", compiled in {human_ms(total_ms(closing.targets))}"
    )


def _not_compiled_rows(records: Sequence[NotCompiled], width: int) -> list[Row]:
    """Return a row for code that ran in eager: its name, line and calls, with the reason below.

    Records of the same code with the same reason, as of several instances, are one row.
    """
    merged: dict[tuple[object, ...], list[NotCompiled]] = {}
    for record in records:
        merged.setdefault((record.name, record.span, record.cause, record.reason), []).append(record)
    rows = []
    for group in sorted(merged.values(), key=lambda group: not group[0].is_graph):
        first, calls = group[0], sum(record.calls for record in group)
        cells = (
            first.name,
            location(first.span) if first.span else "",
            first.cause,
            f"{counted(calls, 'call')} in eager" if calls else "",
        )
        reason = tuple(paragraph(f"{first.reason} [{first.code}]", width, _INDENT))
        rows.append(Row(cells, (_style(first), "dim"), reason))
    return rows


def _style(record: NotCompiled) -> str:
    return "bold red" if record.is_graph else "bold yellow"


def _verdict_rows(closing: Closing, functions: Sequence[Function], word: str, width: int) -> list[Row]:
    """Return the graphs with that outcome, each with its difference or why nothing was compared."""
    rows = []
    for target in (target for function in functions for target in function.targets):
        verdict = closing.verdict(target)
        if verdict is None or verdict.outcome != word:
            continue
        style = "bold red" if word == "differs" else "bold yellow"
        text = [line for part in verdict.text.splitlines() for line in paragraph(part, width, _INDENT)]
        cells = (target.name, location(target.span) if target.span else "")
        rows.append(Row(cells, (style, "dim"), tuple(text)))
    return rows


def _recompiled_rows(dynamo: Dynamo | None, functions: Sequence[Function], width: int) -> list[Row]:
    """Return how often each function was recompiled, and which values changed."""
    rows = []
    for function in sorted(functions, key=lambda function: -function.recompilations):
        if not function.recompilations:
            continue
        times = "once" if function.recompilations == 1 else f"{function.recompilations} times"
        cells = (function.name, _where(function), times)
        below = tuple(paragraph(_changed(dynamo, function) or _differing(function), width, _INDENT, "dim"))
        rows.append(Row(cells, ("bold yellow", "dim"), below))
    return rows


def _changed(dynamo: Dynamo | None, function: Function) -> str:
    """Return the values that failed a guard, by compilation number; empty where Dynamo has no records."""
    ids = {f"{target.graph.frame}/{target.graph.compilation}" for target in function.targets if target.graph}
    values = [
        value
        for dynamo_function in (dynamo.functions if dynamo is not None else ())
        for value in recompiled_values(dynamo_function)
        if any(compilation.id in ids for compilation in value.compilations)
    ]
    return first_names([value_words(value) for value in values], _MOST_NAMES)


def _differing(function: Function) -> str:
    """Return what differs between the compilations, in the user's names."""
    names = list(dict.fromkeys(name for graph in function.graphs for name in graph.differing))
    if names:
        return f"the arguments that differed: {first_names(names, _MOST_NAMES)}"
    if len(function.modes) > 1:
        return "called with gradients and without"
    return "the tensors were the same: a plain value, an attribute or a mode differed"


def _function_rows(closing: Closing, functions: Sequence[Function], width: int) -> list[Row]:
    whole = sum(function.elapsed_ms for function in functions)
    return [_function_row(closing, function, whole, width) for function in functions]


def _function_row(closing: Closing, function: Function, whole_ms: float, width: int) -> Row:
    share = function.elapsed_ms / whole_ms if whole_ms else 0
    graphs = graph_counts(function.targets[0]) if len(function.targets) == 1 else function.counts
    cells = (
        function.name,
        _where(function),
        human_ms(function.elapsed_ms) if share < 1 else "",
        percent(share) if share < 1 else "",
        ", ".join(function.modes),
        graphs,
        _saves(function),
    )
    below = list(_equal_lines(closing, function, width))
    if closing.is_verbose:
        below += detail_lines([(target, closing.verdict(target)) for target in function.targets], width)
    return Row(cells, ("bold cyan", "dim", "", "dim", "", "", "yellow"), tuple(below))


def _equal_lines(closing: Closing, function: Function, width: int) -> Iterator[Text]:
    """Yield the graphs of a function that equal eager."""
    verdicts = [closing.verdict(target) for target in function.targets]
    equal = [verdict for verdict in verdicts if verdict is not None and verdict.outcome == "equal"]
    if not equal:
        return
    first, *more = equal[0].text.splitlines()
    if len(verdicts) > 1:
        count = f"{len(equal)} of " if len(equal) < len(verdicts) else "all "
        first, more = f"{count}{len(verdicts)} compilations", _shared_notes(equal)
    yield from paragraph(f"equal: {first}", width, _INDENT, "green")
    for line in more:
        yield from paragraph(line, width, _INDENT)


def _shared_notes(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the notes that several verdicts share; `-v` prints those of each."""
    notes = Counter(note for verdict in verdicts for note in dict.fromkeys(verdict.details))
    shared = ((note, count) for note, count in notes.items() if count > 1)
    return [note if count == len(verdicts) else f"{count} of them: {note}" for note, count in shared]


def _cache_lines(targets: Sequence[Target], width: int) -> Iterator[Text]:
    """Yield the use of the cache of compiled results, once for all targets."""
    known = [target.cache_answer for target in targets if target.cache_answer is not None]
    hits = [answer for answer in known if answer.outcome == "hit"]
    stored = sum(answer.outcome == "miss" for answer in known)
    parts = []
    if hits:
        cold_ms = sum(answer.cold_ms or 0 for answer in hits)
        took = f", which took {human_ms(cold_ms)} to compile" if cold_ms else ""
        parts.append(f"{counted(len(hits), 'result')} from the cache{took}")
    if stored:
        parts.append(f"{counted(stored, 'result')} stored in the cache for the next run")
    if parts:
        yield from paragraph("; ".join(parts), width, "  ", "dim")
    reasons = [answer.reason for answer in known if answer.outcome == "not stored"]
    for reason in dict.fromkeys(reasons):
        count = counted(reasons.count(reason), "result")
        yield from paragraph(f"{count} not cached: {reason}", width, "  ", "yellow")


def _where(function: Function) -> str:
    if function.span is None:
        return ""
    return f"{path_end(shown_path(function.span.file), _LONGEST_PATH)}:{function.span.line}"


def _saves(function: Function) -> str:
    sizes = [target.partition.saved_bytes for target in function.targets if target.partition]
    return f"saves {bytes_range(min(sizes), max(sizes))}" if sizes else ""
