"""`trace`: a request to the worker, carried out in a child process.

Invariant: nothing of the user's code can raise through `trace`; whatever was captured before a failure is
reported beside it.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType

import torch

from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.report.codec import encode
from aotlens.report.records import Report, Target
from aotlens.session.collect import REPEATS, Collector, StopScript
from aotlens.session.failures import exit_status, failure_of
from aotlens.session.intercept import Router, intercepted
from aotlens.session.script import Script, load_script, new_module, run_script
from aotlens.session.targets import Call, Watch, example_calls, find_target, marking
from aotlens.worker.child import ProgressFunction
from aotlens.worker.codec import Outcome
from aotlens.worker.protocol import Failure, TraceRequest
from aotlens.worker.stacks import is_users
from aotlens.worker.targets import StaticTarget, find_targets

__all__ = ["trace"]


def trace(request: TraceRequest, progress: ProgressFunction) -> Outcome:
    """Run what the request asks for, and report what was captured."""
    tracing = _Tracing(request, progress)
    failure = _failure(tracing.everything, request.path)
    progress("report", "")
    targets: list[Target] = []
    failure = _failure(lambda: targets.extend(tracing.targets()), request.path) or failure
    if failure is None and tracing.collector.refused:
        failure = tracing.collector.refused[0]
    if failure is None and not targets:
        failure = tracing.nothing_found()
    report = None
    if targets:
        command = f"inspect {request.path}" + (f"::{request.qualname}" if request.qualname else "")
        report = encode(Report(torch.__version__, platform.python_version(), command, tuple(targets)))
    return Outcome(report, failure, _user_files(request.path))


def _failure(work: Callable[[], None], path: str) -> Failure | None:
    """How the work failed, or None."""
    try:
        work()
    except StopScript:
        return None
    except SystemExit as error:
        return failure_of(error, path) if exit_status(error) else None
    except BaseException as error:  # user code may raise anything, and the request still gets its answer
        return failure_of(error, path)
    return None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to do with a script, decided from its text."""

    runs: bool
    """Run it as `__main__`, rather than only its definitions."""
    examples: tuple[StaticTarget, ...]
    watched: StaticTarget | None = None


class _Tracing:
    """One request on its way."""

    def __init__(self, request: TraceRequest, progress: ProgressFunction) -> None:
        self._request = request
        self._progress = progress
        self.collector = Collector(None if request.options.to_end else REPEATS)
        self._watch: Watch | None = None

    def everything(self) -> None:
        self._progress("import", self._request.path)
        script = load_script(self._request.path)
        plan = _plan(script, self._request.qualname)
        module = new_module(script, "__main__" if plan.runs else script.name)
        stages = self.collector.listening(lambda stage: self._progress(stage, ""))
        with stages, intercepted(self._router(plan)):
            if plan.runs:
                self._progress("run", "")
            with _stopping_quietly():
                self._run(script, module, plan)
            self.collector.run_on()
            for target in plan.examples:
                self._trace_examples(module, target)

    def _router(self, plan: _Plan) -> Router:
        router = Router(self._options(), self.collector, self._request.path, refuse=True)
        if plan.watched is None:
            return router
        self._watch = Watch(plan.watched, self._compile, self.collector.called)
        return replace(router, choose=self._watch.choose)

    def _run(self, script: Script, module: ModuleType, plan: _Plan) -> None:
        argv = self._request.argv
        if self._watch is None or plan.watched is None:
            run_script(script, module, argv)
            return
        with self._watch.on(module):
            run_script(script, module, argv, marking(plan.watched))

    def _trace_examples(self, module: ModuleType, target: StaticTarget) -> None:
        """A failure of one example is kept, and the next is traced."""
        try:
            for call in example_calls(module, target):
                self._compile(call)
        except Exception as error:  # the user's constructors run here
            self.collector.refuse(failure_of(error, self._request.path))

    def _compile(self, call: Call) -> None:
        options = replace(self._options(), dynamic=call.dynamic or self._request.options.dynamic)
        try:
            if hasattr(call.function, "_torchdynamo_orig_callable") or hasattr(call.function, "_orig_mod"):
                call.function(*call.args, **call.kwargs)  # given to torch.compile: Dynamo captures it
            else:
                compile_direct(call.function, call.args, call.kwargs, options, call.qualname)
        except Exception as error:  # the user's function runs here
            self.collector.refuse(failure_of(error, self._request.path))

    def _options(self) -> CompileOptions:
        asked = self._request.options
        return CompileOptions(
            backend=asked.backend, dynamic=asked.dynamic, policy=asked.policy, observe_variables=True
        )

    def targets(self) -> Iterator[Target]:
        return (compiled.target() for compiled in self.collector.compiled)

    def nothing_found(self) -> Failure:
        path, name = self._request.path, self._request.qualname
        if name is None:
            message = (
                f"{path} has no target: its run gave nothing to torch.compile or aotlens.compile, and no function"
                " has an example; write `# aotlens: example f32[8, 16]` above a def, or name a function that the"
                f" script calls with {path}::NAME"
            )
        else:
            message = (
                f"`{name}` was not called while {path} ran; write an example of its arguments above it, as"
                " `# aotlens: example f32[8, 16], i64[8]`"
            )
        return Failure("no-target", message, file=path)


def _plan(script: Script, qualname: str | None) -> _Plan:
    """Raises SyntaxError, or TargetError where the script has no such name."""
    if qualname is not None:
        target = find_target(script, qualname)
        if target.how == "example":
            return _Plan(runs=False, examples=(target,))
        return _Plan(runs=True, examples=(), watched=target)
    targets = find_targets(script.source, script.path)
    examples = tuple(target for target in targets if target.how == "example")
    compiles = any(target.how == "compile" for target in targets)
    return _Plan(runs=compiles or not examples, examples=examples)


@contextmanager
def _stopping_quietly() -> Iterator[None]:
    """The end of a script that has shown enough, or that left with code 0, is no failure."""
    try:
        yield
    except StopScript:
        return
    except SystemExit as error:
        if exit_status(error):
            raise


def _user_files(path: str) -> tuple[str, ...]:
    """The script and the modules of the user's own that were imported."""
    files = [os.path.abspath(path)]
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.isfile(file) and is_users(file):
            files.append(os.path.abspath(file))
    return tuple(dict.fromkeys(files))
