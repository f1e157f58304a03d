"""The real server over a stand-in for the worker's client, for answers that a test decides.

Run as a program, with `--tcp` on a free port.  What is asked for by name decides: no name gives the sample
report, `big` one with 5,000 more nodes, `gpu` one with kernels for a GPU, `dead` and `two` one with a finding
more, `slow` nothing until it is cancelled, and the name of a kind of failure that failure.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from typing import cast, get_args

from aotlens.diagnostics.correctness import with_verdict
from aotlens.model.codec import encode
from aotlens.model.failure import Failure, FailureKind
from aotlens.model.report import Diagnostic, Edit, Fix, Related, Report, Span, Verdict
from aotlens.worker.protocol import Answer, Hello, Progress, TraceOptions, TraceRequest
from lsp_server.first_answer import Replayed
from lsp_server.runs.tracer import WorkerFactory
from lsp_server.server import build_server
from lsp_server.streams import LOOPBACK, guard_standard_streams, log_to
from lsp_server.transport import serve_stdio, serve_tcp
from tests.report.sample import sample_report
from tests.report.sample_kernels import gpu_sample

BIG = 5_000


class StandInJob:
    def __init__(self, number: int) -> None:
        self.id = number
        self.future: Future[Answer] = Future()
        self._lock = threading.Lock()
        self.future.set_running_or_notify_cancel()

    def cancel(self) -> None:
        self.answer(Answer(self.id, None, Failure("cancelled", "cancelled")))

    def answer(self, answer: Answer) -> None:
        """The first answer counts."""
        with self._lock:
            if not self.future.done():
                self.future.set_result(answer)


class StandInWorker:
    """Answers from a thread, as the client's reader does."""

    def __init__(
        self, python: str | None = None, cwd: str | None = None, on_log: Callable[[str], None] | None = None
    ) -> None:
        self._number = 0
        self.hello = Hello(0, "", "")

    def warm(self) -> None:
        pass

    def close(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def submit(self, request: TraceRequest, on_progress: Callable[[Progress], None]) -> StandInJob:
        self._number += 1
        job = StandInJob(self._number)
        asked = (request.path, request.qualname, request.options)
        threading.Thread(target=self._run, args=(job, *asked, on_progress), daemon=True).start()
        return job

    def _run(
        self,
        job: StandInJob,
        path: str,
        qualname: str | None,
        options: TraceOptions,
        on_progress: Callable[[Progress], None],
    ) -> None:
        on_progress(Progress(job.id, "import", os.path.basename(path)))
        if qualname == "slow":
            return
        if qualname == "print":
            os.write(1, b"a line that is no message\n")
            print("another")  # noqa: T201 (the point of the test)
        if qualname in get_args(FailureKind):
            kind = cast(FailureKind, qualname)
            failure = Failure(kind, f"{path}: {kind} failed", file=path, line=20)
            job.answer(Answer(job.id, None, failure, output="said by the script\n"))
            return
        report = gpu_sample() if qualname == "gpu" or options.gpu is not None else sample_report()
        if qualname in ("Block", "score"):
            report = _only(report, qualname)
        if qualname in ("dead", "two"):
            report = replace(report, diagnostics=(_finding(qualname, path, report),))
        if options.verify:
            verdicts = (Verdict("equal", "3 values"), Verdict("differs", "out differs by 0.5"))
            pairs = zip(report.targets, verdicts, strict=False)
            report = replace(report, targets=tuple(with_verdict(*pair) for pair in pairs))
        data = json.loads(big_report()) if qualname == "big" else encode(report)
        job.answer(Answer(job.id, data, None, elapsed_ms=12.0))


@cache
def big_report() -> str:
    """As it comes over the pipe."""
    return json.dumps(encode(sample_report(BIG)))


def _finding(qualname: str, path: str, report: Report) -> Diagnostic:
    """A value that is kept for nothing, or a finding in one file with a place in another."""
    found = report.targets[0].diagnostics[0]
    if qualname == "dead":
        return Diagnostic("AL304", "warning", "kept for nothing", found.span)
    here, there = Span(path, 1, 0, 1, 6), found.span
    assert there is not None
    fix = Fix("Change both", (Edit(here, "a"), Edit(there, "b")))
    return Diagnostic("AL105", "warning", "here", here, (Related(there, "and there"),), (fix,))


def _only(report: Report, qualname: str) -> Report:
    return replace(report, targets=tuple(one for one in report.targets if one.qualname == qualname))


if __name__ == "__main__":
    log_to(None, verbose=False)
    server = build_server(cast(WorkerFactory, StandInWorker))
    if "--tcp" in sys.argv:
        code = serve_tcp(server, LOOPBACK, 0)
    else:
        reader, writer = guard_standard_streams()
        code = serve_stdio(server, Replayed(b"", reader), writer)
    server.end()
    sys.exit(code)
