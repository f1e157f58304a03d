"""What a trace leaves in memory for further questions about its targets: no user code runs again.

Invariant: an answer is made of the captured graphs alone, with the options of the trace that captured them.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aotlens.compiled import Compiled
from aotlens.model.codec import encode
from aotlens.model.report import Report
from aotlens.options import CompileOptions
from aotlens.session.errors.failures import failure_of
from aotlens.session.policy_function import check_overrides
from aotlens.worker.codec import Outcome
from aotlens.worker.protocol import TraceRequest
from aotlens.worker.requests import ProgressFunction, Trace

__all__ = ["hold", "question_trace"]


@dataclass(frozen=True, slots=True)
class HeldTrace:
    """The targets of a trace."""

    compiled: tuple[Compiled, ...]
    options: CompileOptions
    files: tuple[str, ...]
    """Absolute paths that the trace depends on."""

    def answer(self, request: TraceRequest, progress: ProgressFunction) -> Outcome:
        """Evaluate the what-ifs of a request."""
        torch.set_num_threads(1)  # a fork of a process whose thread pool has started may not use it
        changes = request.options.what_if
        progress("report", "")
        try:
            check_overrides(self.compiled, self.options, changes)
            targets = tuple(compiled.answers(changes) for compiled in self.compiled)
        except Exception as error:  # noqa: BLE001 (the user's change may be impossible in many ways)
            return Outcome(None, failure_of(error, request.path), self.files)
        report = Report(torch.__version__, platform.python_version(), f"inspect {request.path}", targets)
        return Outcome(encode(report), None, self.files)


_TRACES: list[HeldTrace] = []
"""The trace of this process, which runs one."""


def hold(compiled: Sequence[Compiled], options: CompileOptions, files: tuple[str, ...]) -> None:
    """Hold the targets of this process's trace for `question_trace`."""
    _TRACES[:] = [HeldTrace(tuple(compiled), options, files)]


def question_trace() -> Trace | None:
    """Return the function that answers further questions in forks of this process.

    None without a target, and after CUDA was initialised, which no fork survives.
    """
    if not _TRACES or not _TRACES[0].compiled or torch.cuda.is_initialized():
        return None
    return _TRACES[0].answer
