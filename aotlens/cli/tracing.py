"""One trace through the worker, for the commands that show or write what it found."""

from dataclasses import dataclass

from aotlens.cli.target import TargetName, check_script
from aotlens.cli.terminal import say, waiting
from aotlens.report.codec import decode
from aotlens.report.records import Report
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import Failure, TraceOptions

__all__ = ["Traced", "trace_target"]


@dataclass(frozen=True, slots=True)
class Traced:
    """What came back; both a report and a failure when only a part could be traced."""

    report: Report | None
    failure: Failure | None


def trace_target(target: TargetName, argv: list[str], options: TraceOptions, time_limit_s: float) -> Traced:
    """Trace in a child process; what the user's code prints goes to stderr."""
    check_script(target.path)
    with WorkerClient() as client, waiting(f"tracing {target}"):
        job = client.submit(target.path, target.qualname, argv, options, time_limit_s=time_limit_s)
        answer = job.future.result()
    if answer.output:
        say(answer.output.removesuffix("\n"))
    return Traced(decode(answer.report) if answer.report is not None else None, answer.failure)
