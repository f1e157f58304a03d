"""Make one pass over a script and decide which targets are compiled, when, and with which arguments.

Invariant: all commands that take a TARGET use the same plan, so `inspect`, `export` and `verify` agree on the
targets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch

from aotlens.gpu_emulation.attention import gpu_attention
from aotlens.gpu_emulation.contexts import emulating
from aotlens.model.dynamo import Dynamo
from aotlens.model.eager import NotCompiled
from aotlens.model.failure import Failure
from aotlens.model.report import Target
from aotlens.observe import observing
from aotlens.options import CompileOptions, Interpreted
from aotlens.pipeline import compile_direct
from aotlens.session.collector import Collector, StopScript
from aotlens.session.compile_router import (
    AroundBackend,
    BeforeDirect,
    CompileRouter,
    intercepting_compile,
    is_routed_callable,
)
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.dynamo.not_compiled import not_compiled, uncaptured_failures
from aotlens.session.errors.failures import exit_status, failure_of
from aotlens.session.errors.unavailable import EMULATED_GPU
from aotlens.session.policy_function import options_for_targets
from aotlens.session.script.edited import load_edited
from aotlens.session.script.source import Script, new_module, run_script
from aotlens.session.script.targets import Call, Watch, example_calls, find_definition, watch_definition
from aotlens.view.names import first_names
from aotlens.worker.targets import StaticTarget, find_targets

__all__ = ["CompileRequest", "Driver", "Hooks"]


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A script and its compile options, as the user requested them."""

    path: str
    qualname: str | None
    argv: tuple[str, ...]
    options: CompileOptions
    fake: bool = False
    """Run the script with fake tensors."""
    examples: bool = False
    """Compile only the targets that have examples."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Edited files, by absolute path: the texts that run in their place."""


def _compile(call: Call, options: CompileOptions) -> None:
    compile_direct(call.function, call.args, call.kwargs, options, call.qualname)


MOST_NAMES = 3
"""The limit of names in an error message."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The steps in which commands differ."""

    compile: Callable[[Call, CompileOptions], Any] = _compile
    """Compiles a call with the direct frontend."""
    around: AroundBackend = lambda compiled, graph: compiled
    """Wraps what the Dynamo frontend compiled."""
    before_direct: BeforeDirect = lambda function, args, kwargs, options: None
    """Called before the script's own `aotlens.compile` compiles a call."""
    on_stage: Callable[[str, str], None] = lambda stage, detail: None
    """Called with `import`, `run` and the pipeline's stages."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a script is run, decided from its text."""

    runs: bool
    """Run it as `__main__`, not only its definitions."""
    examples: tuple[StaticTarget, ...]
    watched: StaticTarget | None = None

    @classmethod
    def from_script(cls, script: Script, qualname: str | None, only_examples: bool = False) -> "Plan":
        """Plan a script's run.  Raises SyntaxError, or TargetError if the script has no such name."""
        if qualname is not None:
            target = find_definition(script, qualname)
            if target.how == "example":
                return cls(runs=False, examples=(target,))
            return cls(runs=True, examples=(), watched=target)
        targets = find_targets(script.source, script.path)
        examples = tuple(target for target in targets if target.how == "example")
        compiles = any(target.how == "compile" for target in targets)
        return cls(runs=not only_examples and (compiles or not examples), examples=examples)


class Driver:
    """Compiles a script's targets into its collector, together with the failures of single targets."""

    def __init__(self, request: CompileRequest, collector: Collector, hooks: Hooks) -> None:
        self._request = request
        self._collector = collector
        self._hooks = hooks
        self._watch: Watch | None = None
        self._log = DynamoLog()
        self._target = ""
        """The name of the target that is being compiled."""
        self.not_compiled: tuple[NotCompiled, ...] = ()
        """What the script passed to `torch.compile` and did not run compiled; set at its end."""

    def dynamo(self, targets: Sequence[Target]) -> Dynamo | None:
        """Return what Dynamo did, for the report of these targets."""
        return self._log.dynamo(targets)

    def run(self) -> None:
        """Run the script and compile its targets; raises the script's error, except for an orderly end."""
        self._hooks.on_stage("import", self._request.path)
        script = load_edited(self._request.path, self._request.texts)
        plan = Plan.from_script(script, self._request.qualname, self._request.examples)
        self._request = replace(self._request, options=options_for_targets(self._request.options))
        module = new_module(script, "__main__" if plan.runs else script.name)
        listening = self._collector.listening(self._on_stage, self._on_target)
        emulation = self._emulation()
        with listening, intercepting_compile(self._router(plan)), emulation, self._log.listening():
            with _stopping_quietly(), self._announcing_run() if plan.runs else nullcontext():
                self._run_script(script, module, plan)
            self._collector.stop_counting()
            self.not_compiled = not_compiled(self._collector, self._log)
            for failure in uncaptured_failures(self._collector, self._log, self._request.path):
                self._collector.add_failure(failure)
            for target in plan.examples:
                self._compile_examples(module, target)

    @contextmanager
    def _announcing_run(self) -> Iterator[None]:
        """Announce that the script runs: at its start, and again after each target that it compiled."""
        self._hooks.on_stage("run", "")
        with observing(on_compiled=lambda compiled: self._hooks.on_stage("run", "")):
            yield

    def _on_stage(self, stage: str) -> None:
        self._hooks.on_stage(stage, self._target)

    def _on_target(self, name: str) -> None:
        self._target = name

    @contextmanager
    def _emulation(self) -> Iterator[None]:
        """Emulate the GPU and fake tensors; an error that leaves the block carries the GPU's name.

        Attention is recorded as that GPU's kernels, except where a compiler, such as Inductor, compiles the
        graph for this machine's CPU too.
        """
        gpu, backend = self._request.options.gpu, self._request.options.backend
        compiles_for_cpu = backend != "eager" and not isinstance(backend, Interpreted)
        is_only_emulated = not compiles_for_cpu and not torch.cuda.is_available()
        attention = gpu_attention(gpu) if gpu is not None and is_only_emulated else nullcontext()
        with emulating(gpu, self._request.fake), attention:
            try:
                yield
            except Exception as error:
                if gpu is not None:
                    setattr(error, EMULATED_GPU, gpu)
                raise

    def no_target_failure(self) -> Failure:
        """Return a failure that says why there is no target and what to do."""
        path, name = self._request.path, self._request.qualname
        others = self._collector.other_backends
        if name is None and others:
            names = first_names([f"`{record.name}`" for record in others], MOST_NAMES)
            message = (
                f"{path} has no target: the script chose another backend for {names}, which aotlens does not"
                f" replace; to compile it with aotlens instead, name it: {path}::{others[0].name}"
            )
        elif name is None:
            message = (
                f"{path} has no target: its run gave nothing to torch.compile or aotlens.compile, and no"
                " function has an example; write `# aotlens: example f32[8, 16]` above a def, or name a"
                f" function that the script calls with {path}::NAME"
            )
        else:
            message = (
                f"`{name}` was not called while {path} ran; write an example of its arguments above it, as"
                " `# aotlens: example f32[8, 16], i64[8]`"
            )
        return Failure("no-target", message, file=path)

    def _router(self, plan: Plan) -> CompileRouter:
        order, hooks = self._request, self._hooks
        router = CompileRouter(
            options=replace(order.options, strict=False),
            collector=self._collector,
            around=hooks.around,
            before_direct=hooks.before_direct,
            keep_going=True,
        )
        if plan.watched is None:
            return router
        self._watch = Watch(plan.watched, self._compile, self._collector.count_call)
        return replace(router, choose=self._watch.choose, any_backend=True)

    def _run_script(self, script: Script, module: ModuleType, plan: Plan) -> None:
        argv = self._request.argv
        if self._watch is None or plan.watched is None:
            run_script(script, module, argv)
            return
        with self._watch.installed_in(module):
            run_script(script, module, argv, watch_definition(plan.watched))

    def _compile_examples(self, module: ModuleType, target: StaticTarget) -> None:
        """Compile every example; after a failure the next one is tried."""
        try:
            for call in example_calls(module, target):
                self._compile(call)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's constructors run here)
            self._collector.add_failure(failure_of(error, self._request.path))

    def _compile(self, call: Call) -> None:
        options = replace(self._request.options, dynamic=call.dynamic or self._request.options.dynamic)
        try:
            if is_routed_callable(call.function):
                call.function(*call.args, **call.kwargs)
            else:
                self._hooks.compile(call, options)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's function runs here)
            self._collector.add_failure(failure_of(error, self._request.path))


@contextmanager
def _stopping_quietly() -> Iterator[None]:
    """Ignore the end of a script that is stopped early or exits with code 0."""
    try:
        yield
    except StopScript:
        return
    except SystemExit as error:
        if exit_status(error):
            raise
