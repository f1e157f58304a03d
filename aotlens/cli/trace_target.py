"""Trace once through the worker, for the commands that show or write the report."""

import time
from dataclasses import dataclass

from aotlens.cli.progress import waiting
from aotlens.cli.targets import TargetName, check_script
from aotlens.cli.terminal import say
from aotlens.model.codec import decode
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.view.progress import phase_of
from aotlens.worker.answers import open_answer_store
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import Answer, TraceOptions, TraceRequest

__all__ = ["Traced", "trace_target"]


@dataclass(frozen=True, slots=True)
class Traced:
    """The result of a trace; both report and failure if a part could be traced."""

    report: Report | None
    failure: Failure | None
    stopped: bool
    """Whether the script was stopped early, because its targets only repeated."""


def trace_target(
    target: TargetName, argv: list[str], options: TraceOptions, time_limit_s: float, fresh: bool = False
) -> Traced:
    """Trace in a child process; what the user's code prints goes to stderr.

    Unless `fresh`, a stored answer is used if nothing that it depends on has changed.
    """
    check_script(target.path)
    store = open_answer_store()
    request = TraceRequest(
        target.path, target.qualname, tuple(argv), options, time_limit_s, list_reads=store is not None
    )
    answer = store.find(request) if store is not None and not fresh else None
    if answer is not None:
        say("aotlens: nothing has changed since the last trace; --fresh retraces")
    else:
        started = time.time()
        answer = _traced(request)
        if store is not None:
            store.add(request, answer, started)
            if answer.outside:
                say(f"aotlens: the script is retraced each time: {answer.outside}")
    if answer.output:
        say(answer.output.removesuffix("\n"))
    report = decode(answer.report) if answer.report is not None else None
    return Traced(report, answer.failure, answer.stopped)


def _traced(request: TraceRequest) -> Answer:
    target = TargetName(request.path, request.qualname)
    with WorkerClient() as client, waiting(f"tracing {target}") as show:
        job = client.submit(request, lambda progress: show(str(phase_of(progress.stage, progress.detail))))
        answer: Answer = job.future.result()
    return answer
