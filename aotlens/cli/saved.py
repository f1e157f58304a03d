"""A report in a file, or a log of torch's, as TARGET: it is shown, and nothing runs."""

from collections.abc import Sequence
from dataclasses import fields, replace

from aotlens.cli.target import TargetName
from aotlens.cli.trace_reports import is_trace_path, report_of_trace
from aotlens.errors import TargetError, UserError
from aotlens.model.files import load_report
from aotlens.model.report import Report
from aotlens.worker.protocol import TraceOptions

__all__ = ["is_report", "saved_report"]

NOT_TRACED = frozenset({"gpu_texts", "repeat_limit_s", "kernel_limit_s"})
"""Fields of `TraceOptions` that say how long or in which languages, whatever is shown."""
OF_LOGS = frozenset({"policy", "what_if"})
"""Fields that our solver reads on the joint graph of a log."""


def is_report(target: TargetName) -> bool:
    """Whether TARGET names a report, or a log from which one is built, rather than a script."""
    return target.path.endswith(".json") or is_trace_path(target.path)


def saved_report(
    target: TargetName, argv: Sequence[str], options: TraceOptions, mappings: Sequence[str] = ()
) -> Report:
    """The report, or its targets of that name; raises UserError for options that need a trace.

    For a log, our solver is asked under the policy and its what-ifs, beside torch's choice.
    """
    is_log = is_trace_path(target.path)
    default = TraceOptions()
    shown = NOT_TRACED | OF_LOGS if is_log else NOT_TRACED
    changed = [
        f"--{entry.name.replace('_', '-')}"
        for entry in fields(options)
        if entry.name not in shown and getattr(options, entry.name) != getattr(default, entry.name)
    ]
    if changed or argv:
        kind = "log" if is_log else "report"
        raise UserError(
            f"{target.path} is a {kind}, which is only shown: {', '.join([*changed, *argv])} needs a script"
            " to trace"
        )
    if is_log:
        return report_of_trace(
            target.path, target.qualname, mappings, policy=options.policy, what_if=options.what_if
        )
    report = load_report(target.path)
    if target.qualname is None:
        return report
    targets = tuple(each for each in report.targets if target.qualname in (each.name, each.qualname))
    if not targets:
        names = ", ".join(dict.fromkeys(each.qualname for each in report.targets)) or "none"
        raise TargetError(f"no target {target.qualname} in {target.path}; it has {names}")
    return replace(report, targets=targets)
