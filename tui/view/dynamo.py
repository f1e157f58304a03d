"""What Dynamo did, as lines: graph breaks, recompilations and constants, what matters most first."""

from collections.abc import Iterator

from aotlens.report.dynamo_records import CompileSeconds, Dynamo
from aotlens.report.places import source_line
from aotlens.report.summary import human_ms
from aotlens.report.why import Problem, dynamo_summary, problems
from tui.view.places import line_place
from tui.view.rows import Line, Link, Part

__all__ = ["DYNAMO", "all_dynamo_lines", "dynamo_lines", "dynamo_part"]

DYNAMO = "Graph breaks and recompilations"
MOST_PROBLEMS = 6
MOST_LINES = 10


def dynamo_part(dynamo: Dynamo) -> Part:
    """Everything in one line."""
    in_eager = any(problem.kind == "code in eager" for problem in problems(dynamo))
    return Part(dynamo_summary(dynamo), "warning" if in_eager else "")


def dynamo_lines(dynamo: Dynamo) -> Iterator[Line]:
    """One line for each problem, the first ones only."""
    found = [problem for problem in problems(dynamo) if not problem.is_normal]
    for problem in found[:MOST_PROBLEMS]:
        yield _title(problem)
    if len(found) > MOST_PROBLEMS:
        yield Line((Part(f"  … {len(found) - MOST_PROBLEMS} more", "dim"),))


def all_dynamo_lines(dynamo: Dynamo) -> Iterator[Line]:
    """Every problem with its expression, facts and hint; then the compile time."""
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
    yield Line()
    yield from _time_lines(dynamo.compile_seconds)


def _title(problem: Problem) -> Line:
    role = "dim" if problem.is_normal else "error" if problem.kind == "code in eager" else "warning"
    parts = [Part(f"  {problem.title}", role)]
    if problem.span is not None:
        parts.append(Part(f"  {line_place(problem.span)}", "place"))
    if problem.text:
        parts.append(Part(f"  {problem.text}"))
    if problem.seconds:
        parts.append(Part(f"  {human_ms(1000 * problem.seconds)}", "dim"))
    return Line(tuple(parts), _link(problem))


def _link(problem: Problem) -> Link:
    return Link((problem.span,)) if problem.span is not None else Link()


def _time_lines(seconds: CompileSeconds) -> Iterator[Line]:
    yield Line((Part("Compile time", "heading"), Part(f"  {human_ms(1000 * seconds.total)}", "dim")))
    for phase, spent in seconds.by_phase.items():
        yield Line((Part(f"  {human_ms(1000 * spent):>9}", "dim"), Part(f"  {phase}")))
    for line in seconds.by_line[:MOST_LINES]:
        text = source_line(line.span.file, line.span.line).strip()
        parts = (
            Part(f"  {human_ms(1000 * line.seconds):>9}", "dim"),
            Part(f"  {line_place(line.span)}", "place"),
            Part(f"  {text}"),
        )
        yield Line(parts, Link((line.span,)))
