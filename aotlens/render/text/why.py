"""The output of `aotlens why`: one screen, the tried fixes, and one line for other commands."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from aotlens.diagnostics.attach_fixes import fixes_of, outcome_sentence, tried_words
from aotlens.model.dynamo import CompileSeconds, Dynamo, DynamoFunction, DynamoGuard
from aotlens.model.report import Report
from aotlens.model.source import Span
from aotlens.model.spans import line_of, location, source_line, text_of
from aotlens.render.text.forecast import forecast_lines
from aotlens.render.text.layout import (
    WIDTH,
    Page,
    Row,
    heading,
    page_width,
    paragraph,
    print_lines,
    table,
    to_text,
)
from aotlens.render.text.logs import process_lines
from aotlens.view.names import first_names
from aotlens.view.quantities import counted, human_seconds, human_us, percent
from aotlens.view.recompiled_values import duration_words, most_changed, value_words
from aotlens.view.shorten import end_cut
from aotlens.view.why import (
    COMPILED_AT,
    CONSTANTS,
    UNENDED,
    Problem,
    cache_words,
    compilation_name,
    dynamo_counts,
    dynamo_summary,
    miss_words,
    other_constants,
    problems,
    process_words,
    unended_compilations,
)

__all__ = ["dynamo_lines", "print_why", "short_dynamo_lines", "why_text"]

_INDENT = "     "


def fix_summary_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield the effect of all fixes together."""
    if dynamo.fixes_together is not None:
        yield from paragraph(outcome_sentence(dynamo.fixes_together), page.width, "", "green")
    elif dynamo.fixes:
        yield Text("no fix passed: every edit was rejected (--full says why)", "dim")


def fixable_line(dynamo: Dynamo) -> Iterator[Text]:
    """Yield how many edits there are to try, where none was."""
    if dynamo.fixable and not dynamo.fixes:
        what = "1 of these" if dynamo.fixable == 1 else f"{dynamo.fixable} of these"
        yield Text(f"`aotlens why --try-fixes SCRIPT` tries edits for {what} on copies of the script", "dim")


def fix_lines(dynamo: Dynamo, problem: Problem, width: int) -> Iterator[Text]:
    """Yield the fixes that passed for a problem, and what each saves where there are several."""
    is_alone = sum(entry.passed for entry in dynamo.fixes) == 1
    for entry in fixes_of(dynamo, problem.function, problem.target):
        yield from paragraph(f"✓ tested: {entry.fix.title}", width, _INDENT, "bold green")
        if entry.outcome is not None and not is_alone:
            yield from paragraph(tried_words(entry, entry.outcome), width, f"{_INDENT}  ", "green")


def rejected_fix_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield, with `--full`, the edits that did not pass."""
    rejected = [entry for entry in dynamo.fixes if not entry.passed]
    if not rejected or not page.is_full:
        return
    yield heading("Tried and rejected", counted(len(rejected), "edit"))
    for entry in rejected:
        line = f"{entry.function}, `{entry.target}`: {entry.fix.title}: {entry.rejected}"
        yield from paragraph(line, page.width, "  ", "dim")


MOST_PROBLEMS = 7
MOST_LINES = 3
_SMALL_SHARE = 0.005
"""Of the compile time: shorter phases are not shown."""


def print_why(report: Report, console: Console, is_full: bool = False) -> None:
    """Print the answer; colour only where the console has it."""
    print_lines(_why_lines(report, Page(page_width(console), is_full=is_full)), console)


def why_text(report: Report, is_full: bool = False, width: int = WIDTH) -> str:
    """Return the answer as plain text."""
    return to_text(_why_lines(report, Page(width, is_full=is_full)))


def _why_lines(report: Report, page: Page) -> Iterator[Text]:
    if report.incomplete is not None:
        yield from paragraph(f"Incomplete: {report.incomplete}", page.width, "", "bold yellow")
    yield from process_lines(report.log, page)
    if report.dynamo is None:
        nothing = "Dynamo compiled nothing: the script passes nothing to torch.compile, or never calls it"
        yield Text(nothing if report.incomplete is None else "Dynamo compiled nothing until then")
        return
    if report.dynamo.forecasts:
        yield from forecast_lines(report.dynamo, page)
        return
    if not report.dynamo.functions and not report.dynamo.calls_in_eager:
        yield Text("Dynamo compiled nothing in the script's own process")
        yield from _unobserved_lines(report.dynamo, page)
        return
    yield Text.assemble(("aotlens: ", "bold"), (dynamo_summary(report.dynamo), "bold"))
    yield from fix_summary_lines(report.dynamo, page)
    yield from dynamo_lines(report.dynamo, page)


def dynamo_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield what to fix, what is normal, and how the compile time is spent."""
    every = problems(dynamo)
    to_fix = [problem for problem in every if not problem.is_normal]
    normal = [problem for problem in every if problem.is_normal]
    yield from _unended_lines(dynamo, page)
    shown = page.first(to_fix, MOST_PROBLEMS)
    if shown:
        yield heading("What to fix first")
    for number, problem in enumerate(shown, 1):
        yield from _problem_lines(problem, number, page.width)
        yield from fix_lines(dynamo, problem, page.width)
    if len(to_fix) > len(shown):
        yield Text(f"  and {len(to_fix) - len(shown)} more ({page.rest})", "dim")
    if not to_fix and not unended_compilations(dynamo):
        yield Text("nothing to fix", "green")
    if normal:
        yield heading("Normal", "a value that varies")
        rows = [
            Row((problem.title, problem.function, problem.duration), ("", "", "dim"))
            for problem in page.first(normal, MOST_LINES)
        ]
        yield from table(rows, page.width)
        for problem in normal:
            yield from fix_lines(dynamo, problem, page.width)
    yield from fixable_line(dynamo)
    yield from rejected_fix_lines(dynamo, page)
    yield from _recompilation_lines(dynamo, page)
    yield from _compiled_at_lines(dynamo, page)
    yield from _constant_lines(dynamo, page)
    yield from _unobserved_lines(dynamo, page)
    yield from _guard_lines(dynamo, page)
    yield from _time_lines(dynamo.compile_seconds, page)


def _problem_lines(problem: Problem, number: int, width: int) -> Iterator[Text]:
    style = "bold red" if problem.kind == "code in eager" else "bold yellow"
    where = location(problem.span) if problem.span is not None else ""
    cost = f"  {problem.duration}" if problem.duration else ""
    yield Text.assemble(f"  {number}. ", (problem.full_title, style), f"  {where}", (cost, "bold"))
    code = problem.text or (source_line(problem.span.file, problem.span.line).strip() if problem.span else "")
    if code:
        yield Text(_INDENT).append(end_cut(code, width - len(_INDENT)), "cyan")
    for fact in problem.facts:
        yield from paragraph(fact, width, _INDENT)
    if problem.hint:
        yield from paragraph(f"→ {problem.hint}", width, _INDENT, "green")


def _unended_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield the compilations in which a log stops: of a job that hangs or was killed, they are the answer."""
    unended = unended_compilations(dynamo)
    if unended:
        yield heading(*UNENDED)
        shown = page.first(unended, MOST_LINES)
        rows = [
            Row((compilation_name(function, compilation), location(function.span)), ("bold yellow", "dim"))
            for function, compilation in shown
        ]
        yield from table(rows, page.width)


def _compiled_at_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield, with `--full`, where the script compiles each function."""
    functions = [function for function in dynamo.functions if function.compiled_at]
    if functions and page.is_full:
        yield heading(*COMPILED_AT)
        rows = [
            Row((function.qualname, location(span), text_of(span)), ("", "dim", "cyan"), clip=True)
            for function in functions
            for span in function.compiled_at
        ]
        yield from table(rows, page.width)


def _constant_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield, with `--full`, the constants that are no problem."""
    constants = other_constants(dynamo)
    if constants and page.is_full:
        yield heading(*CONSTANTS)
        rows = [
            Row(
                (
                    f"{entry.name} = {entry.value}",
                    "" if entry.span is None else location(entry.span),
                    entry.reason,
                ),
                ("", "dim", "dim"),
            )
            for entry in constants
        ]
        yield from table(rows, page.width)


def _unobserved_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield the other processes, of which nothing is known."""
    if dynamo.processes:
        yield heading("Not observed", "processes that the script started")
        shown = page.first(dynamo.processes, MOST_LINES)
        rows = [
            Row((process_words(entry), "" if entry.span is None else location(entry.span)), ("", "dim"))
            for entry in shown
        ]
        yield from table(rows, page.width)


def _guard_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield the cost of guards per call, where it was measured."""
    measured = [function for function in dynamo.functions if function.guard_nanoseconds is not None]
    if not measured:
        return
    yield heading("Guards per call", "measured warm; a value's share is its number of checks")
    rows = []
    for function in sorted(measured, key=lambda row: -(row.guard_nanoseconds or 0)):
        count = sum(guard.count for guard in function.guards)
        calls = counted(function.calls, "call") if function.calls is not None else ""
        cost = human_us((function.guard_nanoseconds or 0) / 1000)
        dearest = ", ".join(guard.name for guard in function.guards[:MOST_LINES])
        rows.append(Row((function.qualname, cost, counted(count, "check"), calls, dearest)))
    yield from table(page.first(rows, MOST_LINES), page.width, frozenset({1}))
    if page.is_full:
        yield heading("Guards by line", "per call, the most expensive first")
        yield from table(list(_guard_rows(measured)), page.width, frozenset({0}))


def _guard_rows(functions: Sequence[DynamoFunction]) -> Iterator[Row]:
    """Yield the guards of each line, with their share of the measured time."""
    lines: dict[Span | None, list[DynamoGuard]] = {}
    for function in functions:
        for guard in function.guards:
            lines.setdefault(guard.span and replace(guard.span, col=0, end_col=0), []).append(guard)
    costs = {span: sum(guard.nanoseconds or 0.0 for guard in guards) for span, guards in lines.items()}
    for span in sorted(lines, key=lambda span: -costs[span]):
        guards = lines[span]
        count = counted(sum(guard.count for guard in guards), "check")
        where = "no line of yours" if span is None else line_of(span)
        names = first_names(list(dict.fromkeys(guard.name for guard in guards)), MOST_LINES)
        yield Row((human_us(costs[span] / 1000), count, where, names), ("", "", "dim", ""))


def _recompilation_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """Yield, with `--full`, every recompilation with the call that failed the guard."""
    rows = []
    for function in dynamo.functions:
        for compilation in function.recompilations:
            cause = compilation.cause
            if cause is None:
                continue
            change = f"{cause.name} {cause.old} → {cause.new}" if cause.new else cause.guard
            took = duration_words(compilation.seconds.total, int(not compilation.has_ended))
            call = "" if cause.call is None else f"called at {location(cause.call)}"
            cells = (compilation_name(function, compilation), took, change, call)
            rows.append(Row(cells, ("", "bold", "", "dim")))
    if rows and page.is_full:
        yield heading("Recompilations", "each with the change that caused it, and the call")
        yield from table(rows, page.width, frozenset({1}))


def _time_lines(seconds: CompileSeconds, page: Page) -> Iterator[Text]:
    total = seconds.total
    if not total:
        return
    share = percent(seconds.attributed / total)
    yield heading("Compile time", f"{human_seconds(total)}, {share} of it in known phases")
    phases = [(name, spent) for name, spent in seconds.by_phase.items() if spent >= _SMALL_SHARE * total]
    phase_text = " · ".join(f"{name} {human_seconds(spent)}" for name, spent in phases)
    yield from paragraph(phase_text, page.width, "  ")
    lines = page.first(seconds.by_line, MOST_LINES)
    rows = [
        Row(
            (
                human_seconds(line.seconds),
                location(line.span),
                source_line(line.span.file, line.span.line).strip(),
            ),
            ("", "dim", "cyan"),
            clip=True,
        )
        for line in lines
    ]
    yield from table(rows, page.width, frozenset({0}))
    for cache in seconds.caches:
        yield Text(f"  {cache_words(cache)}", "dim")
    misses = miss_words(seconds)
    for words in page.first(misses, MOST_LINES):
        yield from paragraph(words, page.width, "    ", "dim")


def short_dynamo_lines(dynamo: Dynamo, width: int) -> Iterator[Text]:
    """Yield one line each for graph breaks, recompilations and constants; none where there are none."""
    breaks, recompilations, constants = dynamo_counts(dynamo)
    rows: list[Row] = []
    if breaks:
        texts = [f"{location(entry.span)} `{entry.text}`" for entry in dynamo.breaks]
        rows.append(_short_row("graph breaks", breaks, texts))
    if recompilations:
        words = [f"{value_words(value)} ({len(value.compilations)})" for value in most_changed(dynamo)]
        rows.append(_short_row("recompilations", recompilations, words))
    if constants:
        fixed = [
            f"{entry.name} = {entry.value}"
            for function in dynamo.functions
            for entry in function.specialisations
            if entry.kind == "compared"
        ]
        rows.append(_short_row("constant sizes", constants, fixed))
    if rows:
        yield heading("Dynamo", "`aotlens why SCRIPT` explains each")
        yield from table(rows, width, frozenset({1}))


def _short_row(label: str, count: int, texts: Sequence[str]) -> Row:
    return Row((label, str(count), first_names(texts, 1)), ("", "bold", "dim"))
