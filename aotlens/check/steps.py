"""Measure the steps of scripts that have a budget `step-peak`, as `aotlens fit` does.

Invariant: a script runs at most once, and not at all while its last result is for the same GPU and its files
are unchanged.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from aotlens.check.files import SourceFile, python_files
from aotlens.check.settings import settings_for
from aotlens.check.tracing import Traced
from aotlens.fit.job import FIT_CHILD, FitJob
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.model.spans import relative_path
from aotlens.session.script.source import load_script
from aotlens.session.why.observation import observe_script
from aotlens.worker.fit_results import FitResults, FitRun, open_fit_results, with_files

__all__ = ["find_step_files", "measure_steps"]

STEP_CALL = ".step("
"""A script without it has no step to measure, so it is not run."""


def find_step_files(paths: Iterable[str]) -> tuple[SourceFile, ...]:
    """Return the scripts among the paths, and below folders, that have a budget and call an optimizer's step.

    Raises:
        UserError: a path that does not exist; invalid settings.
    """
    files: dict[str, SourceFile] = {}
    for path in python_files(paths):
        settings = settings_for(path)
        if settings.budget_of(path).step_peak is None or os.path.realpath(path) in files:
            continue
        try:
            source = load_script(path).source
        except SyntaxError:  # it is reported where its examples are
            continue
        if STEP_CALL in source:
            files[os.path.realpath(path)] = SourceFile(path, source, settings, ())
    return tuple(files.values())


def measure_steps(
    files: Sequence[SourceFile], fresh: bool, on_done: Callable[[SourceFile], None]
) -> Iterator[Traced]:
    """Yield the result of each script, one script at a time: a large model's step may need much memory."""
    results = open_fit_results()
    for file in files:
        known = None if fresh or results is None else _known(results, file)
        yield Traced(file, known, None) if known is not None else _measured(results, file)
        on_done(file)


def _known(results: FitResults, file: SourceFile) -> Report | None:
    stored = results.find(file.path, file.argv)
    if stored is None or stored[1] != file.settings.options.gpu:
        return None
    return with_files(stored[0], relative_path)


def _measured(results: FitResults | None, file: SourceFile) -> Traced:
    settings, started = file.settings, time.time()
    job = FitJob(file.path, file.argv, settings.options.gpu)
    observed = observe_script(job, FIT_CHILD, time_limit_s=settings.time_limit_s)
    report, failure = observed.report, observed.failure
    if report is None:
        return Traced(file, None, failure or _without_report(file, observed.exit_code))
    if failure is not None:
        return Traced(file, None, failure)
    if results is not None:
        results.add(FitRun(file.path, file.argv, settings.options.gpu, observed.files, started), report)
    return Traced(file, report, None)


def _without_report(file: SourceFile, exit_code: int) -> Failure:
    message = f"the step of {file.path} was not measured: the script ended with exit code {exit_code}"
    return Failure("crash", message, file=file.path)
