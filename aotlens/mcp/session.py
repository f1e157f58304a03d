"""The tools' work, for one client.

Invariant: a request that runs user code without saying so is rejected before anything is started.
"""

import argparse
from dataclasses import replace

from aotlens.cli.targets import TargetName, check_gpu
from aotlens.compare.difference import LineChange, TargetChange, report_change
from aotlens.errors import UserError
from aotlens.mcp.answers import (
    ApplyFixAnswer,
    DiffAnswer,
    FitAnswer,
    InspectAnswer,
    TargetVerdict,
    TargetWhatIf,
    VerifyAnswer,
    WhatIfAnswer,
    WhyAnswer,
)
from aotlens.mcp.fixes import apply_fix
from aotlens.mcp.overview import Rows, fit_answer, inspect_answer, why_answer
from aotlens.mcp.reports import ReportStore, Root
from aotlens.mcp.requests import (
    ApplyFixRequest,
    DiffRequest,
    FitRequest,
    InspectRequest,
    TargetRequest,
    VerifyRequest,
    WhatIfRequest,
    WhyRequest,
)
from aotlens.mcp.runs import Call, ScriptRun, measure_step, observe, trace
from aotlens.model.report import Report
from aotlens.policy import Policy
from aotlens.view.verdicts import WORST_FIRST, verdict_of
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import TraceOptions, TraceRequest

__all__ = ["Session"]


class Session:
    """One client's root, its worker and its reports."""

    def __init__(self, root: Root, worker: WorkerClient | None = None) -> None:
        """The first call that traces starts the worker; tests pass a fake one."""
        self.root = root
        self._worker = worker or WorkerClient(cwd=str(root.folder))
        self._reports = ReportStore(root)

    def close(self) -> None:
        """End the worker and everything that it runs."""
        self._worker.close()

    def inspect(self, request: InspectRequest, call: Call) -> InspectAnswer:
        if (request.target is None) == (request.report is None):
            raise UserError("pass either `target`, which runs a script, or `report`, which reads one")
        if request.report is not None:
            return inspect_answer(self._reports.get(request.report), request, "")
        check_gpu(request.gpu)
        options = TraceOptions(
            backend=request.backend,
            dynamic=request.dynamic,
            policy=_policy(request),
            gpu=request.gpu,
            gpu_texts=(),
            fake=request.fake,
        )
        ran = self._trace(request, options, call)
        return inspect_answer(ran.stored, request, ran.output)

    def why(self, request: WhyRequest, call: Call) -> WhyAnswer:
        if (request.script is None) == (request.report is None):
            raise UserError("pass either `script`, which is run, or `report`, which is read")
        if request.report is not None:
            return why_answer(self._reports.get(request.report), request.rows, "")
        assert request.script is not None
        _check_consent(request.run_user_code, request.script)
        ran = observe(self._reports, request, self.root.inside(request.script), call)
        return why_answer(ran.stored, request.rows, ran.output)

    def fit(self, request: FitRequest, call: Call) -> FitAnswer:
        if (request.script is None) == (request.report is None):
            raise UserError("pass either `script`, which is run, or `report`, which is read")
        if request.report is not None:
            return fit_answer(self._reports.get(request.report), request.rows, "")
        assert request.script is not None
        _check_consent(request.run_user_code, request.script)
        check_gpu(request.gpu)
        ran = measure_step(self._reports, request, self.root.inside(request.script), call)
        return fit_answer(ran.stored, request.rows, ran.output)

    def verify(self, request: VerifyRequest, call: Call) -> VerifyAnswer:
        options = TraceOptions(
            backend=request.backend, dynamic=request.dynamic, policy=_policy(request), verify=True
        )
        ran = self._trace(request, options, call)
        report = ran.stored.report
        verdicts = sorted(_verdicts(report), key=lambda verdict: WORST_FIRST.index(verdict.outcome))
        all_equal = report.incomplete is None and all(entry.outcome == "equal" for entry in verdicts)
        has_errors = any(finding.severity == "error" for finding in report.diagnostics)
        return VerifyAnswer(
            ran.stored.name, all_equal and not has_errors, tuple(verdicts), report.incomplete, ran.output
        )

    def what_if(self, request: WhatIfRequest, call: Call) -> WhatIfAnswer:
        policy = Policy.parse([request.policy], request.memory_budget)
        if not request.changes:
            raise UserError("`changes` is empty; name one, such as `recompute:hidden`")
        for change in request.changes:
            policy.changed(change)  # an invalid form is reported before anything is run
        options = TraceOptions(policy=str(policy), what_if=request.changes)
        ran = self._trace(request, options, call)
        report = ran.stored.report
        targets = (
            TargetWhatIf(target.name, target.partition.what_if)
            for target in report.targets
            if target.partition is not None
        )
        return WhatIfAnswer(ran.stored.name, tuple(targets), report.incomplete, ran.output)

    def diff(self, request: DiffRequest, call: Call) -> DiffAnswer:
        before, after = self._compared(request, call)
        from aotlens.render.text.difference import (
            difference_lines,
        )  # rich takes 0.1 s, needed only for the text
        from aotlens.render.text.layout import WIDTH, to_text

        change, rows = report_change(before, after), Rows(request.rows)
        return DiffAnswer(
            change.is_empty,
            to_text(difference_lines(change, WIDTH)),
            tuple(_cut(target, rows) for target in rows.cut("targets", change.targets)),
            tuple(target.name for target in change.added),
            tuple(target.name for target in change.removed),
            tuple(rows.left_out),
        )

    def apply_fix(self, request: ApplyFixRequest, call: Call) -> ApplyFixAnswer:
        return apply_fix(self._reports, request)

    def _trace(self, request: TargetRequest, options: TraceOptions, call: Call) -> ScriptRun:
        assert request.target is not None
        _check_consent(request.run_user_code, request.target)
        target = self._target(request.target)
        trace_request = TraceRequest(
            target.path, target.qualname, request.argv, options, request.time_limit_s
        )
        return trace(self._worker, self._reports, trace_request, call)

    def _target(self, text: str) -> TargetName:
        try:
            target = TargetName.parse(text)
        except argparse.ArgumentTypeError as error:
            raise UserError(str(error)) from None
        self.root.inside(target.path)
        return target

    def _compared(self, request: DiffRequest, call: Call) -> tuple[Report, Report]:
        names = (request.before, request.after)
        if request.git is None:
            if None in names or request.target is not None:
                raise UserError("pass `before` and `after`, which are read, or `git` and `target`, which run")
            before, after = (self._reports.get(name).report for name in names if name is not None)
            return before, after
        if names != (None, None) or request.target is None:
            raise UserError("`git` takes a `target`, and neither `before` nor `after`")
        _check_consent(request.run_user_code, request.target)
        from aotlens.cli.revision_traces import trace_revisions  # only with `git`

        call.report_progress(f"tracing {request.target} at {request.git}")
        target, argv = self._target(request.target), list(request.argv)
        return trace_revisions(request.git, target, argv, TraceOptions(gpu_texts=()), request.time_limit_s)


def _check_consent(may_run: bool, script: str) -> None:
    if not may_run:
        raise UserError(
            f"this would run {script} as `python` does, with your rights; pass `run_user_code: true` if it"
            " may run"
        )


def _policy(request: InspectRequest | VerifyRequest) -> str:
    return str(Policy.parse([request.policy], request.memory_budget))


def _verdicts(report: Report) -> list[TargetVerdict]:
    """Return the verdicts as `aotlens verify` lists them: targets, then what ran in eager."""
    rows = [
        TargetVerdict(target.name, target.verified.outcome, target.verified.text)
        for target in report.targets
        if target.verified is not None
    ]
    eager = ((record.name, verdict_of(record)) for record in report.not_compiled)
    return rows + [TargetVerdict(name, each.outcome, each.text) for name, each in eager if each is not None]


def _cut(target: TargetChange, rows: Rows) -> TargetChange:
    """Return the change with each of its lists cut."""
    name = target.name
    lines: tuple[LineChange, ...] = rows.cut(f"{name}.lines", target.lines)
    return replace(
        target,
        lines=tuple(replace(line, nodes=rows.cut(f"{name}.lines.nodes", line.nodes)) for line in lines),
        elsewhere=rows.cut(f"{name}.elsewhere", target.elsewhere),
        saved=rows.cut(f"{name}.saved", target.saved),
        findings_new=rows.cut(f"{name}.findings_new", target.findings_new),
        findings_gone=rows.cut(f"{name}.findings_gone", target.findings_gone),
    )
