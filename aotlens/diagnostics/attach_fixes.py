"""Attaches tested fixes to graph breaks and to the findings about them."""

from dataclasses import replace

from aotlens.model.dynamo import Break, Dynamo, DynamoFunction, FixOutcome, TriedFix
from aotlens.model.report import Diagnostic, Report
from aotlens.model.source import Fix, Span
from aotlens.view.quantities import human_seconds
from aotlens.view.recompiled_values import recompiled_values

__all__ = ["fixes_of", "outcome_sentence", "saving_words", "tried_words", "with_fixes"]


def fixes_of(dynamo: Dynamo, function: str, target: str) -> tuple[TriedFix, ...]:
    """Return the fixes that passed for a graph break or a value of a function."""
    return tuple(
        entry
        for entry in dynamo.fixes
        if entry.passed and (entry.function, entry.target) == (function, target)
    )


def outcome_sentence(outcome: FixOutcome) -> str:
    """Return the effect of all fixes that passed together."""
    fixes = "1 fix" if outcome.together == 1 else f"{outcome.together} fixes together"
    return f"Tested, {fixes}: {saving_words(outcome)}; equal to eager: {outcome.compared}"


def saving_words(outcome: FixOutcome) -> str:
    """`graph breaks 1 → 0, compilations 10 → 1, compiling takes 397 ms less`."""
    parts = [
        f"graph breaks {outcome.breaks_before} → {outcome.breaks_after}",
        f"compilations {outcome.compilations_before} → {outcome.compilations_after}",
    ]
    if outcome.seconds_saved is not None and outcome.seconds_saved > 0:
        parts.append(f"compiling takes {human_seconds(outcome.seconds_saved)} less")
    return ", ".join(parts)


def tried_words(entry: TriedFix, outcome: FixOutcome) -> str:
    """`alone: graph breaks 1 → 0, compilations 10 → 9`, and why it is not written."""
    others = outcome.together - 1
    run = "alone" if not others else "with 1 other fix" if others == 1 else f"with {others} other fixes"
    conflict = f"; not written: with the others, {entry.conflict}" if entry.conflict else ""
    return f"{run}: {saving_words(outcome)}{conflict}"


def with_fixes(report: Report, fixes: tuple[TriedFix, ...], together: FixOutcome | None = None) -> Report:
    """Return the report with the tried fixes; graph breaks and findings have only those that passed."""
    if report.dynamo is None:
        return report
    dynamo = replace(report.dynamo, fixes=fixes, fixes_together=together)
    dynamo = replace(dynamo, functions=tuple(_function(dynamo, entry) for entry in dynamo.functions))
    by_span = _by_span(dynamo)
    findings = tuple(_finding(entry, by_span) for entry in report.diagnostics)
    return replace(report, dynamo=dynamo, diagnostics=findings)


def _function(dynamo: Dynamo, function: DynamoFunction) -> DynamoFunction:
    breaks = tuple(_break(dynamo, function, entry) for entry in function.breaks)
    return replace(function, breaks=breaks)


def _break(dynamo: Dynamo, function: DynamoFunction, entry: Break) -> Break:
    return replace(entry, fixes=tuple(tried.fix for tried in fixes_of(dynamo, function.qualname, entry.text)))


def _by_span(dynamo: Dynamo) -> dict[Span, tuple[Fix, ...]]:
    table: dict[Span, tuple[Fix, ...]] = {}
    for function in dynamo.functions:
        for entry in function.breaks:
            table[entry.span] = (*table.get(entry.span, ()), *entry.fixes)
        for value in recompiled_values(function):
            span = value.span or value.causes[0].call or function.span
            fixes = (tried.fix for tried in fixes_of(dynamo, function.qualname, value.name))
            table[span] = (*table.get(span, ()), *fixes)
    return table


DYNAMO_CODES = ("AL40",)


def _finding(finding: Diagnostic, by_span: dict[Span, tuple[Fix, ...]]) -> Diagnostic:
    fixes = by_span.get(finding.span, ()) if finding.span is not None else ()
    if not fixes or not finding.code.startswith(DYNAMO_CODES):
        return finding
    return replace(finding, fixes=tuple(dict.fromkeys((*finding.fixes, *fixes))))
