"""`aotlens fit SNAPSHOT.pickle [SCRIPT ARGS…]`: who held GPU memory, compared with the prediction.

Invariant: the snapshot runs nothing; a script that is named runs as in `aotlens fit SCRIPT`.
"""

import argparse
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

from aotlens.cli.edited_files import EditedFiles
from aotlens.cli.export_formats import check_whole_format, whole_text
from aotlens.cli.fit_advice import tested_advice
from aotlens.cli.targets import check_script
from aotlens.cli.terminal import say, show_failure, write_data
from aotlens.errors import UserError
from aotlens.fit.advice.target import Goal, PeakTarget
from aotlens.fit.failure_match import failing_devices, match_failure
from aotlens.fit.job import FIT_CHILD, FitJob
from aotlens.fit.snapshot_child import read_in_child
from aotlens.model.fit import Fit
from aotlens.model.memory_snapshot import FailureMatch
from aotlens.model.report import Report
from aotlens.session.why.observation import Observation, observe_script
from aotlens.view.step_memory.failures import avoided_lines, match_lines
from aotlens.view.step_memory.snapshots import snapshot_lines
from aotlens.worker.fit_results import FitRun, open_fit_results

__all__ = ["show_snapshot"]

SCHEMA = "aotlens.snapshot/1"
ANY_GPU = "h100"
"""The emulated GPU of a script that uses one, where none is named: a snapshot does not say which it was."""


def show_snapshot(arguments: argparse.Namespace) -> int:
    """Print the devices of a snapshot and, with a script, how the prediction explains them."""
    check_whole_format(arguments.format, arguments.output)
    _check_options(arguments)
    devices = read_in_child(arguments.script)
    if not devices:
        raise UserError(f"{arguments.script}: it shows no memory on any device, and no failed allocation")
    report = Report("", platform.python_version(), f"fit {arguments.script}", memory_snapshots=devices)
    diffs: tuple[str, ...] = ()
    if arguments.argv:
        report, diffs = _compared(report, arguments)
    _show(report, diffs, arguments)
    return 0


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise UserError for options of a script's step: with a snapshot, the target is the failed device's."""
    for option in ("fix", "target", "advise", "largest", "ranks"):
        if getattr(arguments, option) not in (None, False):
            script = " ".join(arguments.argv) or "SCRIPT"
            raise UserError(f"--{option} needs a script alone: aotlens fit --{option} … {script}")


def _compared(report: Report, arguments: argparse.Namespace) -> tuple[Report, tuple[str, ...]]:
    """Return the report with what held memory beside what is predicted, and the diff for each device."""
    script, *argv = arguments.argv
    check_script(script)
    job = FitJob(script, tuple(argv), arguments.gpu or ANY_GPU, arguments.real, arguments.to_end)
    started = time.time()
    observed = observe_script(job, FIT_CHILD)
    fit = _predicted(observed, script)
    matches = [match_failure(device, fit, script) for device in failing_devices(report.memory_snapshots)]
    tested = [_with_edits(match, job, fit) for match in matches]
    assert observed.report is not None
    named = fit if arguments.gpu else replace(fit, fits=None, step_milliseconds=None)
    report = replace(
        observed.report,
        fit=named,
        memory_snapshots=report.memory_snapshots,
        failure_matches=tuple(match for match, _ in tested),
    )
    results = open_fit_results()
    if results is not None:
        results.add(FitRun(job.path, job.argv, arguments.gpu, observed.files, started), report)
    return report, tuple(diff for _, diff in tested)


def _predicted(observed: Observation, script: str) -> Fit:
    """Return the step of the script; raises UserError if it fails or makes no step."""
    fit = None if observed.report is None else observed.report.fit
    if observed.failure is not None:
        show_failure(observed.failure.message, observed.failure.traceback, observed.failure.exit_code)
    if fit is None or not fit.curve or observed.failure is not None:
        raise UserError(f"{script} has no prediction to compare with: it fails, or allocates nothing")
    if observed.report is not None and observed.report.incomplete is not None:
        say(f"aotlens: warning: the prediction is incomplete: {observed.report.incomplete}")
    return fit


def _with_edits(match: FailureMatch, job: FitJob, fit: Fit) -> tuple[FailureMatch, str]:
    """Add the cheapest edits that leave room for what the prediction does not explain; return their diff."""
    if match.failed_bytes is None or match.step_bytes <= match.target_bytes:
        return match, ""
    goal = Goal(PeakTarget(match.target_bytes, is_reserved=True), is_whole=False)
    advised, texts = tested_advice(job, fit, goal)
    originals = {file: texts[file] for file in advised.texts}
    diff = EditedFiles(originals, advised.texts).diff if advised.texts else ""
    return replace(match, avoided_by=advised.plan), diff


def _show(report: Report, diffs: Sequence[str], arguments: argparse.Namespace) -> None:
    devices, matches = report.memory_snapshots, report.failure_matches
    if arguments.format == "json":
        data = {
            "schema": SCHEMA,
            "devices": [asdict(device) for device in devices],
            "matches": [asdict(match) for match in matches],
        }
        write_data(json.dumps(data, indent=2, ensure_ascii=False) + "\n", arguments.output)
    elif arguments.format == "html":
        write_data(whole_text(report, "html", arguments.script), arguments.output)
    else:
        parts = ["\n".join(snapshot_lines(device, is_full=arguments.full)) for device in devices]
        for match, diff in zip(matches, diffs, strict=True):
            parts.append("\n".join(match_lines(match, is_full=arguments.full)))
            parts += [part for part in ("\n".join(avoided_lines(match)), diff.rstrip("\n")) if part]
        write_data("\n\n".join(parts) + "\n", arguments.output)
