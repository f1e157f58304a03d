"""Turn a report into the answer of a tool: short by default, with the requested parts.

Invariant: a list that is cut is named in `left_out` with its number of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from aotlens.errors import UserError
from aotlens.mcp.answers import FitAnswer, InspectAnswer, NumberedFix, TargetOverview, WhyAnswer
from aotlens.mcp.reports import StoredReport
from aotlens.mcp.requests import InspectRequest
from aotlens.model.dynamo import DynamoFunction
from aotlens.model.report import Diagnostic, Fix, Memory, Partition, Report, Stage, Target, Wrapper
from aotlens.view.quantities import applied_steps, every_digit
from aotlens.view.step_memory.step import fit_lines

__all__ = ["Rows", "fit_answer", "inspect_answer", "numbered_fixes", "why_answer"]

T = TypeVar("T")


@dataclass(slots=True)
class Rows:
    """Cuts lists to a length, and records which."""

    most: int
    left_out: list[str] = field(default_factory=list)

    def cut(self, name: str, rows: Sequence[T]) -> tuple[T, ...]:
        if len(rows) > self.most:
            self.left_out.append(f"{name}: {self.most} of {len(rows)} rows")
        return tuple(rows[: self.most])


def inspect_answer(stored: StoredReport, request: InspectRequest, output: str) -> InspectAnswer:
    """Return the answer.  Raises UserError for a stage that no target has."""
    from aotlens.render.text.report import report_text  # rich takes 0.1 s, needed only for the text

    report, rows = stored.report, Rows(request.rows)
    return InspectAnswer(
        stored.name,
        report_text(report),
        tuple(_overview(target) for target in rows.cut("targets", report.targets)),
        rows.cut("diagnostics", _findings(report)),
        rows.cut("not_compiled", report.not_compiled),
        rows.cut("fixes", [fix for fix, _ in numbered_fixes(report)]),
        tuple(_details(report, request, rows)),
        tuple(rows.left_out),
        report.incomplete,
        output,
    )


def why_answer(stored: StoredReport, most_rows: int, output: str) -> WhyAnswer:
    from aotlens.render.text.why import why_text  # rich takes 0.1 s, needed only for the text

    report, rows = stored.report, Rows(most_rows)
    functions = report.dynamo.functions if report.dynamo is not None else ()
    forecasts = report.dynamo.forecasts if report.dynamo is not None else ()
    seconds = report.dynamo.compile_seconds if report.dynamo is not None else None
    if seconds is not None:
        seconds = replace(seconds, by_line=rows.cut("compile_seconds.by_line", seconds.by_line))
    return WhyAnswer(
        stored.name,
        why_text(report),
        tuple(_function(function, rows) for function in rows.cut("functions", functions)),
        seconds,
        rows.cut("diagnostics", _findings(report)),
        rows.cut("fixes", [fix for fix, _ in numbered_fixes(report)]),
        rows.cut("forecasts", forecasts),
        tuple(rows.left_out),
        report.incomplete,
        output,
    )


def fit_answer(stored: StoredReport, most_rows: int, output: str) -> FitAnswer:
    """Return the answer.  Raises UserError for a report that has no step."""
    fit, rows = stored.report.fit, Rows(most_rows)
    if fit is None:
        raise UserError(f"{stored.name} does not hold the memory of a step; call `fit` with `script`")
    return FitAnswer(
        stored.name,
        "\n".join(fit_lines(fit)),
        fit.step_peak_bytes,
        fit.at,
        rows.cut("by_kind", fit.by_kind),
        rows.cut("by_line", fit.by_line),
        fit.phases,
        fit.fits,
        fit.assumptions,
        tuple(rows.left_out),
        stored.report.incomplete,
        output,
    )


def numbered_fixes(report: Report) -> list[tuple[NumberedFix, Fix]]:
    """Return every edit of the report, each once, in the order of its findings."""
    tried = report.dynamo.fixes if report.dynamo is not None else ()
    tested = {entry.fix for entry in tried if entry.passed}
    by_fix: dict[Fix, Diagnostic] = {}
    for finding in _findings(report):
        for fix in finding.fixes:
            by_fix.setdefault(fix, finding)
    return [
        (NumberedFix(number, finding.code, fix.title, finding.span, fix in tested), fix)
        for number, (fix, finding) in enumerate(by_fix.items(), 1)
    ]


def _findings(report: Report) -> list[Diagnostic]:
    return [*report.diagnostics, *(finding for target in report.targets for finding in target.diagnostics)]


def _overview(target: Target) -> TargetOverview:
    return TargetOverview(
        target.name,
        target.qualname,
        target.frontend,
        target.mode,
        target.span,
        len(target.inputs),
        tuple(row.name for row in target.inputs if row.mutation_type != "not_mutated"),
        len(target.outputs),
        None if target.partition is None else target.partition.saved_bytes,
        None if target.memory is None else target.memory.peak_bytes,
        len(target.kernels),
        tuple(step.name for step in applied_steps(target)),
        target.verified,
    )


def _details(report: Report, request: InspectRequest, rows: Rows) -> Iterator[Target]:
    """Yield each target with only the requested parts."""
    if request.stage is not None and not any(target.stage(request.stage) for target in report.targets):
        names = dict.fromkeys(stage.name for target in report.targets for stage in target.stages)
        raise UserError(f"no stage {request.stage}; this report has {', '.join(names) or 'none'}")
    if not request.parts and request.stage is None:
        return
    for target in report.targets[: rows.most]:
        bare = Target(target.name, target.qualname, target.frontend, target.mode, target.span)
        parts = {part: _part(target, part, rows) for part in request.parts if part != "source"}
        if "source" in request.parts:
            parts["wrapper"] = target.wrapper
        stage = target.stage(request.stage) if request.stage is not None else None
        stages = () if stage is None else (_stage(target, stage, rows),)
        yield replace(bare, **parts, stages=stages)


def _part(target: Target, part: str, rows: Rows) -> Any:
    value, name = getattr(target, part), f"{target.name}.{part}"
    match value:
        case tuple():
            return rows.cut(name, value)
        case Partition():
            saved = sorted(value.saved, key=lambda row: -row.bytes)
            recomputed = sorted(value.recomputed, key=lambda row: -row.bytes)
            value = replace(value, saved=tuple(saved), recomputed=tuple(recomputed))
            return _cut_fields(name, value, rows)
        case Wrapper():
            rows.left_out.append(
                f"{name}.source: {every_digit(len(value.source))} characters; ask for the part `source`"
            )
            return replace(value, source="")
        case Memory():
            return _cut_fields(name, value, rows)
    return value


def _cut_fields(name: str, record: Any, rows: Rows) -> Any:
    """Return the record with each of its lists cut."""
    lists = {entry.name: getattr(record, entry.name) for entry in fields(record)}
    cut = {key: rows.cut(f"{name}.{key}", value) for key, value in lists.items() if isinstance(value, tuple)}
    return replace(record, **cut)


def _stage(target: Target, stage: Stage, rows: Rows) -> Stage:
    return replace(stage, nodes=rows.cut(f"{target.name}.stages.{stage.name}.nodes", stage.nodes))


def _function(function: DynamoFunction, rows: Rows) -> DynamoFunction:
    return _cut_fields(function.qualname, function, rows)
