"""Carry out a request to the worker in a child process.

Invariant: user code cannot raise through `trace`; whatever was captured before a failure is reported with it.
"""

import platform
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import takewhile

import torch

from aotlens.compiled import Compiled
from aotlens.diagnostics.correctness import with_verdict
from aotlens.diagnostics.failures import from_failure
from aotlens.diagnostics.tracing import dynamo_findings, from_not_compiled
from aotlens.gpu_emulation.autocast import assumed_casts
from aotlens.model.codec import encode
from aotlens.model.eager import NotCompiled, NotCompiledCause
from aotlens.model.failure import Failure
from aotlens.model.report import Diagnostic, Report, Target
from aotlens.observe import observing
from aotlens.options import KERNEL_LIMIT_S, CompileOptions
from aotlens.session.collector import REPEATS, Collector
from aotlens.session.driver import CompileRequest, Driver, Hooks
from aotlens.session.errors.failures import failure_of
from aotlens.session.held import hold
from aotlens.session.policy_function import check_overrides
from aotlens.session.script.edited import importing_edited
from aotlens.session.script.file_reads import FileReads, files_of_run, recording_file_reads
from aotlens.session.verify import Verifier
from aotlens.torch_api.triton import mute_triton_analysis_log
from aotlens.view.quantities import limit_text
from aotlens.worker.codec import Outcome
from aotlens.worker.protocol import TraceOptions, TraceRequest
from aotlens.worker.requests import ProgressFunction

__all__ = ["forget_loaded_modules", "trace"]


_OVERRIDES = ("`save:", "`recompute:")
"""The start of a message about an override that a target rejects."""

_OURS: list[str] = []
"""The name of the last module that was loaded before any user code; empty if unknown."""


def trace(request: TraceRequest, progress: ProgressFunction) -> Outcome:
    """Run the requested targets and report what was captured."""
    collector = Collector(request.path, _repeats(request.options), request.options.repeat_limit_s)
    compile_request = _compile_request(request)
    options = compile_request.options
    verifier = Verifier(collector, options) if request.options.verify else None
    driver = Driver(compile_request, collector, _hooks(verifier, progress))
    reads, failure = _run(request, driver)
    if request.hold:
        hold(collector.compiled, options, _files(request.path, reads))
    if failure is None and (rejected := _rejected_override(request, collector, options)) is not None:
        return Outcome(None, rejected, _files(request.path, reads))
    progress("report", "")
    targets: list[Target] = []
    with observing(on_stage=lambda stage: progress(stage, "")), mute_triton_analysis_log():
        build = partial(_build, collector, request.options, verifier, targets)
        failure = _failure(build, request.path) or failure
    failure, failures, notes = _main_failure(failure, collector.failures, targets)
    if failure is None and not targets:
        failure = driver.no_target_failure()
    data, dynamo = None, driver.dynamo(targets)
    is_answer = dynamo is not None and request.qualname is None and not request.options.only_what_if
    if is_answer and failure is not None and failure.kind == "no-target":
        notes.append(replace(from_failure(failure), severity="warning"))
        failure = None  # what Dynamo did for another backend is an answer too
    if targets or is_answer:
        report = _report(request, targets, driver.not_compiled, failures)
        failed = () if failure is None else (from_failure(failure),)
        findings = (*failed, *notes, *report.diagnostics, *dynamo_findings(dynamo))
        cut_short = _cut_short(collector, failure, request.options)
        data = encode(replace(report, diagnostics=findings, dynamo=dynamo, incomplete=cut_short))
    return Outcome(data, failure, _files(request.path, reads), reads.outside, collector.stopped)


def _run(request: TraceRequest, driver: Driver) -> tuple[FileReads, Failure | None]:
    """Run the script or the examples; return the files that were read, and how the run failed."""
    editing = importing_edited(dict(request.texts)) if request.texts else nullcontext()
    with editing, recording_file_reads(request.list_reads) as reads, mute_triton_analysis_log():
        return reads, _failure(driver.run, request.path)


def _rejected_override(
    request: TraceRequest, collector: Collector, options: CompileOptions
) -> Failure | None:
    """Return the mistake in the request's overrides, if any; a target that rejected one says more."""
    check = partial(check_overrides, collector.compiled, options, request.options.what_if)
    failure = _failure(check, request.path)
    if failure is None:
        return None
    return next((error for error in collector.failures if error.message.startswith(_OVERRIDES)), failure)


def _main_failure(
    failure: Failure | None, failures: list[Failure], targets: list[Target]
) -> tuple[Failure | None, list[Failure], list[Diagnostic]]:
    """Return the failure of the whole trace, if any, those of single examples and graphs, and notes.

    The answer has the traceback of the first; those of the others are added to the script's output.  After a
    capture `sys.exit(1)` is an ordinary end of the script; a read of a fake tensor's value is not, so a note
    says where the trace ends.
    """
    notes = []
    if targets and failure is not None and failure.kind in ("exit", "no-value"):
        notes = [_note(failure)] if failure.kind == "no-value" else []
        failure = None
    if failure is None and failures and not targets:
        failure, failures = failures[0], failures[1:]
    for other in failures:
        if other.traceback:
            sys.stderr.write(other.traceback.rstrip() + "\n")
    return failure, failures, notes


def _cut_short(collector: Collector, failure: Failure | None, options: TraceOptions) -> str | None:
    """Return why some targets may be missing; None if the script ran to its end."""
    if failure is not None:
        return f"the script failed: {failure.message}"
    if not collector.stopped:
        return None
    limit = limit_text(options.repeat_limit_s)
    return (
        f"the script was stopped after {limit} in which its targets only repeated;"
        " a longer --repeat-limit, or --to-end, shows what comes later"
    )


def _hooks(verifier: Verifier | None, progress: ProgressFunction) -> Hooks:
    if verifier is None:
        return Hooks(on_stage=progress)
    return Hooks(verifier.compare, verifier.around, verifier.before_direct, progress)


def _repeats(options: TraceOptions) -> int | None:
    """Return how many calls without a new capture are enough; fake tensors never cause a new one."""
    if options.to_end:
        return None
    return 1 if options.fake else REPEATS


def _compile_request(request: TraceRequest) -> CompileRequest:
    asked = request.options
    options = CompileOptions(
        backend=asked.backend,
        dynamic=asked.dynamic,
        policy=asked.policy,
        observe_variables=True,
        gpu=asked.gpu,
        inductor_config=(("max_autotune", True),) if asked.max_autotune else (),
        gpu_texts=asked.gpu_texts,
        standalone=asked.standalone,
        kernel_limit_s=KERNEL_LIMIT_S if asked.kernel_limit_s is None else asked.kernel_limit_s,
    )
    return CompileRequest(
        request.path, request.qualname, request.argv, options, asked.fake, asked.examples, dict(request.texts)
    )


def _build(
    collector: Collector, options: TraceOptions, verifier: Verifier | None, targets: list[Target]
) -> None:
    """Append to `targets` one by one, so that a failure keeps the earlier ones.

    An example may repeat what the script's run has captured; then the run's capture is kept.
    """
    if options.only_what_if:
        targets += [compiled.answers(options.what_if) for compiled in collector.compiled]
        return
    shown: set[object] = set()
    verdicts = verifier.verdicts() if verifier is not None else [None] * len(collector.compiled)
    for compiled, verdict in zip(collector.compiled, verdicts, strict=True):
        _compile_backward(compiled)
        measured = compiled.measure() if _measures(options) else ()
        target = with_verdict(compiled.target(options.what_if, options.dead_values), verdict)
        target = replace(target, measured=measured)
        if target.gpu_assumptions:
            target = replace(target, gpu_assumptions=(*target.gpu_assumptions, *assumed_casts()))
        if target.frontend == "dynamo":
            shown.add(_signature(target))
        elif _signature(target) in shown:
            continue
        targets.append(target)
        if target.gpu_error:
            file = target.span.file if target.span is not None else None
            collector.failures.append(Failure("unsupported", target.gpu_error, file=file))


def _measures(options: TraceOptions) -> bool:
    """Return True if kernels are timed: always on a GPU that the script uses, elsewhere on request."""
    return options.measure or (torch.cuda.is_initialized() and not options.fake)


def _compile_backward(compiled: Compiled) -> None:
    """Generate the backward's kernels if no call has done so, because a report shows all of them."""
    backward = compiled.code.backward
    if backward is not None and backward.compile is not None and not backward.kernels():
        backward.compile()


def _signature(target: Target) -> object:
    """Return a value that is equal for captures of one function with like arguments, for any frontend."""
    tensors = (replace(row.tensor, requires_grad=row.requires_grad) for row in target.inputs if row.tensor)
    return target.qualname, target.mode, target.span, frozenset(Counter(tensors).items())


def _note(failure: Failure) -> Diagnostic:
    diagnostic = from_failure(failure)
    text = f"{failure.message}; the trace ends there, and what was captured before is complete"
    return replace(diagnostic, severity="information", message=text)


BY_DYNAMO: tuple[NotCompiledCause, ...] = (
    "rest of function",
    "some calls",
    "recompile limit",
    "not called",
    "no graph",
    "other backend",
)
"""Kinds that no failure of the trace reports; `dynamo_findings` reports graph breaks."""


def _report(
    request: TraceRequest,
    targets: list[Target],
    not_compiled: tuple[NotCompiled, ...],
    failures: list[Failure],
) -> Report:
    command = f"inspect {request.path}" + (f"::{request.qualname}" if request.qualname else "")
    eager = (from_not_compiled(record) for record in not_compiled if record.cause in BY_DYNAMO)
    findings = (*(from_failure(failure) for failure in failures), *eager)
    versions = (torch.__version__, platform.python_version())
    return Report(*versions, command, tuple(targets), findings, not_compiled)


def _failure(work: Callable[[], None], path: str) -> Failure | None:
    """Return how the work failed, or None."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 (user code may raise anything; the request gets its answer)
        return failure_of(error, path)
    return None


def _files(path: str, reads: FileReads) -> tuple[str, ...]:
    """Return the script, the imported modules of the user's, and the files that the script read."""
    imported = list(takewhile(lambda name: name not in _OURS, reversed(sys.modules)))
    return files_of_run(path, reads, reversed(imported))


def forget_loaded_modules() -> None:
    """Ignore the modules loaded so far: none is the user's, and reading them would copy memory pages."""
    _OURS.append(next(reversed(sys.modules)))
