"""The child process of `aotlens fit`: it runs the script on fake tensors and observes its memory.

Invariant: compiled code runs with the engine's backend `eager`, so the observer sees each operator of a
compiled graph like those of eager code.
"""

import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from textwrap import shorten

import torch

from aotlens.build.memory import memory_of
from aotlens.diagnostics.step_memory import step_findings
from aotlens.fit.capacity import gpu_fit
from aotlens.fit.collectives import Communication
from aotlens.fit.fake_values import reading_without_values
from aotlens.fit.graph_lines import GraphLines
from aotlens.fit.job import FitJob
from aotlens.fit.library_workspaces import LibraryWorkspaces
from aotlens.fit.observer import Observer, observing_memory
from aotlens.fit.other_phases import observing_saves
from aotlens.fit.rank_process import acting_as_rank, observing_gathered_parameters
from aotlens.fit.rank_report import distribution_of
from aotlens.fit.step import fit_of
from aotlens.fit.stopping import StepWatch
from aotlens.fit.work import WorkCounter
from aotlens.gpu_emulation.attention import gpu_attention
from aotlens.gpu_emulation.contexts import emulating
from aotlens.gpu_emulation.dropout import gpu_dropout
from aotlens.ir.origin import Frames
from aotlens.model.fit import Fit
from aotlens.model.gpus.names import find_target
from aotlens.model.report import Report
from aotlens.model.spans import location
from aotlens.session.collector import Collector, StopScript
from aotlens.session.compile_router import CompileRouter, intercepting_compile
from aotlens.session.errors.unavailable import without_fake_option
from aotlens.session.job_folder import read_job
from aotlens.session.run import ScriptEnd, run_to_end
from aotlens.session.script.edited import importing_edited, load_edited
from aotlens.session.script.file_reads import files_of_run, recording_file_reads
from aotlens.session.script.source import new_module, run_script
from aotlens.session.why.observation import save_observation
from aotlens.view.quantities import counted, human_bytes

__all__ = ["fit_script", "main"]

HOPPER = "sm_90"
MOST_LINES = 3
MOST_CHARACTERS = 80
"""Of an error's text in an assumption."""


def main(folder: str) -> int:
    """Run the script, write the report to the folder, and return the script's exit code."""
    job = read_job(folder, FitJob)
    before = frozenset(sys.modules)
    with recording_file_reads(is_enabled=True) as reads:
        end, report = fit_script(job)
    files = files_of_run(job.path, reads, [name for name in sys.modules if name not in before])
    return save_observation(folder, end, report, files)


def fit_script(job: FitJob) -> tuple[ScriptEnd, Report]:
    """Run the script until its steps repeat, and report the memory of the last one."""
    collector, observers = Collector(job.path), list[Observer]()
    watch = StepWatch(job.to_end, collector.compiled)
    has_gpu = torch.cuda.is_available()

    def script() -> None:
        router = CompileRouter.for_observation(collector)
        with ExitStack() as stack:
            stack.enter_context(importing_edited(job.texts))
            stack.enter_context(collector.listening())
            stack.enter_context(intercepting_compile(router))
            stack.enter_context(emulating(job.gpu, fake=not job.is_real))
            if not job.is_real:
                stack.enter_context(reading_without_values())
            if job.gpu is not None and not job.is_real and not has_gpu:
                stack.enter_context(gpu_attention(job.gpu))
                stack.enter_context(gpu_dropout())
            stack.enter_context(acting_as_rank(job))
            communication = None if job.rank is None else Communication(job.world_size)
            graph_frames = GraphLines(collector.compiled).frames_at
            observer = Observer(watch.after_step, graph_frames, communication)
            observer.work = WorkCounter(None if job.gpu is None else find_target(job.gpu))
            observer.workspaces = _workspaces(job, has_gpu)
            if communication is not None:
                stack.enter_context(observing_gathered_parameters(observer.parameter_gathered))
            observers.append(stack.enter_context(observing_memory(observer)))
            stack.enter_context(observing_saves(observer.other_phases, is_fake=not job.is_real))
            collector.stopped = _run(job, observers[0], watch)

    end = run_to_end(script, job.path)
    failure = end.failure
    if failure is not None:
        end = replace(end, failure=replace(failure, message=without_fake_option(failure.message)))
    stopped = end.incomplete
    if stopped is None and observers and (lines := watch.unknown_integers(observers[0])):
        stopped = _unknown_sizes(lines)
    fit = _fit(job, observers[0], collector) if observers else None
    findings = tuple(step_findings(fit)) if fit is not None and end.failure is None else ()
    report = Report(
        torch.__version__,
        platform.python_version(),
        f"fit {job.path}",
        (),
        findings,
        incomplete=stopped,
        fit=fit,
    )
    return end, report


def _workspaces(job: FitJob, has_gpu: bool) -> LibraryWorkspaces | None:
    """Return those of the named GPU, or of the machine's."""
    if job.gpu is not None:
        return LibraryWorkspaces(find_target(job.gpu).sm == HOPPER)
    return LibraryWorkspaces(torch.cuda.get_device_capability() == (9, 0)) if has_gpu else None


def _run(job: FitJob, observer: Observer, watch: StepWatch) -> bool:
    """Run the script, and return True if it was stopped before its end."""
    loaded = load_edited(job.path, job.texts)
    module = new_module(loaded, "__main__")
    try:
        run_script(loaded, module, job.argv)
    except StopScript:
        return True
    except Exception:
        if not watch.is_testing:
            raise
        watch.end_test(observer)
        return True
    finally:
        observer.learn_modules()
    return False


def _fit(job: FitJob, observer: Observer, collector: Collector) -> Fit:
    fit = fit_of(observer, not job.is_real, tuple(_assumptions(job, observer, collector)))
    if job.rank is not None:
        fit = replace(fit, distribution=distribution_of(job, observer, fit))
    if job.gpu is None:
        return fit
    milliseconds = observer.work.of_step(fit.calls_per_step).microseconds / 1e3
    return replace(fit, fits=gpu_fit(fit.allocations, job.gpu), step_milliseconds=milliseconds)


def _unknown_sizes(frames: frozenset[Frames]) -> str:
    spans = [where.innermost for where in frames]
    lines = sorted({location(span) for span in spans if span is not None}) or ["a line of a library"]
    where = ", ".join(lines[:MOST_LINES])
    return (
        f"fake tensors have no values, and the script reads integers at {where}; if sizes depend on them,"
        " the figures are wrong: compare with --real"
    )


def _assumptions(job: FitJob, observer: Observer, collector: Collector) -> Iterator[str]:
    """Yield the assumptions of the prediction, as sentences without a final period."""
    if collector.stopped:
        yield "the script was stopped once its steps repeated: what follows the training is not counted"
    yield from _about_compiled_code(collector)
    if observer.placeholders.values_read:
        spans = [where.innermost for where in observer.placeholders.values_read]
        lines = list(dict.fromkeys(location(span) for span in spans if span is not None))
        more = f" and {counted(len(lines) - MOST_LINES, 'more line')}" if len(lines) > MOST_LINES else ""
        yield (
            "fake tensors have no values: where the script reads one, it gets 0.0, 1 or False, at"
            f" {', '.join(lines[:MOST_LINES]) or 'a line of a library'}{more}"
        )
    if observer.other_phases.skipped_saves:
        yield "`torch.save` writes no file, because fake tensors have no values"
    yield (
        "working memory of kernels is counted by rules for torch's CPU kernels; of a GPU's libraries, only"
        " what cuBLAS keeps is counted"
    )
    if job.gpu is not None and not any(life.device == "cuda" for life in observer.lives):
        yield f"the script moves nothing to a GPU: its CPU tensors are counted as if they were on {job.gpu}"


def _about_compiled_code(collector: Collector) -> Iterator[str]:
    peaks: dict[str, int] = {}
    for compiled in collector.compiled:
        peak = memory_of(compiled.parts).peak_bytes
        peaks[compiled.qualname] = max(peak, peaks.get(compiled.qualname, 0))
    for qualname, peak in islice(peaks.items(), MOST_LINES):
        yield (
            f"`{qualname}` is compiled: each operator of its graph is counted on its own, without fusion; the"
            f" memory model of its graphs predicts {human_bytes(peak)} for one call"
        )
    if (rest := len(peaks) - MOST_LINES) > 0:
        verb = "is" if rest == 1 else "are"
        yield f"{counted(rest, 'more function')} {verb} counted in the same way"
    for record in collector.eager_graphs[:MOST_LINES]:
        where = f" at {location(record.span)}" if record.span is not None else ""
        yield (
            f"`{record.qualname}`{where} is counted as in eager, without the choice of what to save: it could"
            f" not be compiled on fake tensors ({shorten(record.reason, MOST_CHARACTERS)})"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
