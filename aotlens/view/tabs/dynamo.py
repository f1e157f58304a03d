"""Dynamo's work as lines: what to fix first, then skipped code, checks before each call, and times.

Invariant: every line about an expression leads to it.
"""

from collections.abc import Iterator

from aotlens.diagnostics.attach_fixes import fixes_of
from aotlens.model.dynamo import CompileSeconds, Dynamo, DynamoFunction
from aotlens.model.recompilations import Forecast
from aotlens.model.spans import line_text, source_line, text_of
from aotlens.view.forecast import (
    axis_title,
    call_rows,
    failed_guards,
    forecast_summary,
    recompiling,
    remedy_words,
)
from aotlens.view.quantities import counted, human_seconds, human_us
from aotlens.view.tabs.tables.rows import Line, Link, Part
from aotlens.view.why import (
    COMPILED_AT,
    CONSTANTS,
    UNENDED,
    Problem,
    cache_words,
    compilation_name,
    dynamo_summary,
    miss_words,
    other_constants,
    problems,
    process_words,
    unended_compilations,
)

__all__ = ["DYNAMO", "all_dynamo_lines", "dynamo_part", "first_problem_lines", "why_lines"]

DYNAMO = "Graph breaks and recompilations"
MOST_PROBLEMS = 6
MOST_LINES = 10
NOTHING = "Dynamo compiled nothing: the targets were traced directly, or run in eager"


def dynamo_part(dynamo: Dynamo) -> Part:
    """Everything in one line."""
    in_eager = any(problem.kind == "code in eager" for problem in problems(dynamo))
    return Part(dynamo_summary(dynamo), "warning" if in_eager else "")


def first_problem_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Yield a line for each of the first problems, without those that are normal in most programs."""
    to_fix = [problem for problem in problems(dynamo) if not problem.is_normal]
    for problem in to_fix[:MOST_PROBLEMS]:
        yield _title(problem)
    if len(to_fix) > MOST_PROBLEMS:
        yield Line((Part(f"  … {len(to_fix) - MOST_PROBLEMS} more", "dim"),))


def all_dynamo_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Every problem with its expression, facts, hint and tested fixes; then everything else that is known."""
    if dynamo.forecasts:
        yield from forecast_lines(dynamo)
        return
    yield Line((Part(dynamo_summary(dynamo), "title"),))
    for problem in problems(dynamo):
        yield Line()
        yield _title(problem)
        link = _link(problem)
        code = problem.text or (
            source_line(problem.span.file, problem.span.line).strip() if problem.span is not None else ""
        )
        if code:
            yield Line((Part(f"    {code}", "accent"),), link)
        for fact in problem.facts:
            yield Line((Part(f"    {fact}"),), link, wrap=True)
        if problem.hint:
            yield Line((Part(f"    → {problem.hint}", "ok"),), link, wrap=True)
        for tried in fixes_of(dynamo, problem.function, problem.target):
            yield Line((Part(f"    ✓ tested: {tried.fix.title}", "ok"),), link, wrap=True)
    sections = (
        _unended_lines(dynamo),
        _compiled_at_lines(dynamo),
        _constant_lines(dynamo),
        _skipped_lines(dynamo),
        _guard_lines(dynamo),
        _process_lines(dynamo),
    )
    for section in sections:
        lines = tuple(section)
        if lines:
            yield Line()
            yield from lines
    yield Line()
    yield from _time_lines(dynamo.compile_seconds)


def why_lines(dynamo: Dynamo | None) -> tuple[Line, ...]:
    """Return the lines of the tab; one line where there is nothing to report."""
    return (Line((Part(NOTHING, "dim"),)),) if dynamo is None else tuple(all_dynamo_lines(dynamo))


def _unended_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Yield the compilations in which a log stops."""
    unended = unended_compilations(dynamo)
    if unended:
        title, why = UNENDED
        yield Line((Part(title, "heading"), Part(f"  {why}", "dim")))
    for function, compilation in unended:
        name = Part(f"  {compilation_name(function, compilation)}", "warning")
        yield Line((name, Part(f"  {line_text(function.span)}", "place")), Link((function.span,)))


def _compiled_at_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Yield where the script compiles each function."""
    functions = [function for function in dynamo.functions if function.compiled_at]
    if functions:
        title, why = COMPILED_AT
        yield Line((Part(title, "heading"), Part(f"  {why}", "dim")))
    for function in functions:
        for span in function.compiled_at:
            parts = (
                Part(f"  {function.qualname}"),
                Part(f"  {line_text(span)}", "place"),
                Part(f"  {text_of(span)}", "dim"),
            )
            yield Line(parts, Link((span,)))


def _constant_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Sizes and numbers that are constants for other reasons than the user's comparisons."""
    constants = other_constants(dynamo)
    if constants:
        title, why = CONSTANTS
        yield Line((Part(title, "heading"), Part(f"  {why}", "dim")))
    for entry in constants:
        parts = [Part(f"  {entry.name} = {entry.value}")]
        if entry.span is not None:
            parts.append(Part(f"  {line_text(entry.span)}", "place"))
        link = Link((entry.span,)) if entry.span is not None else Link()
        yield Line((*parts, Part(f"  {entry.reason}", "dim")), link, wrap=True)


def _skipped_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Functions that stay in Python at no loss; those at a loss are problems."""
    skipped = [entry for function in dynamo.functions for entry in function.skipped if not entry.is_loss]
    if skipped:
        yield Line(
            (
                Part("Skipped", "heading"),
                Part("  left to Python: they have no tensor operations", "dim"),
            )
        )
    for entry in skipped:
        parts = (
            Part(f"  {entry.name}"),
            Part(f"  {line_text(entry.span)}", "place"),
            Part(f"  {entry.reason}", "dim"),
        )
        yield Line(parts, Link((entry.span,)), wrap=True)


def _guard_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Yield the values that are checked before each call, those with the most checks first."""
    if any(function.guards for function in dynamo.functions):
        yield Line((Part("Guards", "heading"), Part("  checked before each call", "dim")))
    for function in dynamo.functions:
        if not function.guards:
            continue
        yield Line((Part(f"  {function.qualname}", "title"), Part(f"  {_guard_cost(function)}", "dim")))
        for guard in function.guards[:MOST_LINES]:
            parts = [Part(f"    {guard.count:>4} ", "dim"), Part(guard.name)]
            if guard.span is not None:
                parts.append(Part(f"  {line_text(guard.span)}", "place"))
            link = Link((guard.span,)) if guard.span is not None else Link()
            yield Line((*parts, Part(f"  {guard.expression}", "dim")), link)
        if len(function.guards) > MOST_LINES:
            yield Line((Part(f"         … {len(function.guards) - MOST_LINES} more values", "dim"),))


def _process_lines(dynamo: Dynamo) -> Iterator[Line]:
    if dynamo.processes:
        yield Line((Part("Not observed", "heading"), Part("  processes that the script started", "dim")))
    for entry in dynamo.processes:
        link = Link() if entry.span is None else Link((entry.span,))
        where = "" if entry.span is None else f"  {line_text(entry.span)}"
        yield Line((Part(f"  {process_words(entry)}"), Part(where, "place")), link)


def _guard_cost(function: DynamoFunction) -> str:
    count = counted(sum(guard.count for guard in function.guards), "check")
    if function.guard_nanoseconds is None:
        return count
    return f"{count}, {human_us(function.guard_nanoseconds / 1000)} per call"


def forecast_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Yield the results of calls with other arguments."""
    yield Line((Part(forecast_summary(dynamo), "title"),))
    for entry in dynamo.forecasts:
        yield Line()
        yield Line(
            (Part(f"  {entry.function}", "title"), Part(f"  {line_text(entry.span)}", "place")),
            Link((entry.span,)),
        )
        yield Line((Part(f"    called with {', '.join(entry.arguments)}", "dim"),), wrap=True)
        yield from _axis_lines(entry)


def _axis_lines(entry: Forecast) -> Iterator[Line]:
    for axis in entry.axes:
        if axis.kind == "asked":
            for row in call_rows(axis):
                link = Link() if row.span is None else Link((row.span,))
                yield Line((Part(f"    {row.value}", "accent"), Part(f"  {row.words}")), link)
    for axis in recompiling(entry):
        if axis.kind != "asked":
            yield Line((Part(f"    {axis_title(axis)}", "warning"),))
            for failed in failed_guards(entry, axis):
                link = Link() if failed.span is None else Link((failed.span,))
                yield Line((Part(f"      {failed.words}"),), link, wrap=True)
        if words := remedy_words(axis):
            yield Line((Part(f"      → {words}", "ok"),), wrap=True)


def _title(problem: Problem) -> Line:
    role = "dim" if problem.is_normal else "error" if problem.kind == "code in eager" else "warning"
    parts = [Part(f"  {problem.title}", role)]
    if problem.span is not None:
        parts.append(Part(f"  {line_text(problem.span)}", "place"))
    if problem.text:
        parts.append(Part(f"  {problem.text}"))
    if problem.duration:
        parts.append(Part(f"  {problem.duration}", "dim"))
    return Line(tuple(parts), _link(problem))


def _link(problem: Problem) -> Link:
    return Link((problem.span,)) if problem.span is not None else Link()


def _time_lines(seconds: CompileSeconds) -> Iterator[Line]:
    yield Line((Part("Compile time", "heading"), Part(f"  {human_seconds(seconds.total)}", "dim")))
    for phase, spent in seconds.by_phase.items():
        yield Line((Part(f"  {human_seconds(spent):>9}", "dim"), Part(f"  {phase}")))
    for line in seconds.by_line[:MOST_LINES]:
        text = source_line(line.span.file, line.span.line).strip()
        parts = (
            Part(f"  {human_seconds(line.seconds):>9}", "dim"),
            Part(f"  {line_text(line.span)}", "place"),
            Part(f"  {text}"),
        )
        yield Line(parts, Link((line.span,)))
    for cache in seconds.caches:
        yield Line((Part(f"  {cache_words(cache)}", "dim"),))
    for words in miss_words(seconds):
        yield Line((Part(f"    {words}", "dim"),), wrap=True)
