"""The one list of stages, and the only module that imports stage functions.

    capture    a callable or graph, example arguments  ->  Captured
    analysis   Captured                                ->  ViewAndMutationMeta
    joint      Captured, metadata                      ->  JointProgram
    partition  JointProgram, policy                    ->  Partitioned
    codegen    Partitioned, backend                    ->  Generated
    runtime    Partitioned, Generated                  ->  LoadedModule
    report     everything above                        ->  report.records.Target   (on demand)

Invariant: data goes one way; every stage's record is kept in `Compiled`.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.analysis.stage import analyse
from aotlens.capture.direct import capture_direct
from aotlens.capture.dynamo import capture_graph_module
from aotlens.capture.operators import Decompositions
from aotlens.capture.owned import module_tensors
from aotlens.capture.philox_rules import with_random_rules
from aotlens.capture.records import Captured
from aotlens.capture.settings import Settings
from aotlens.codegen.inductor import decompositions as inductor_decompositions
from aotlens.codegen.records import Generated
from aotlens.codegen.stage import generate
from aotlens.errors import UnknownValueError
from aotlens.ir.program import Program
from aotlens.joint.passes import with_joint_passes
from aotlens.joint.records import JointProgram
from aotlens.joint.stage import build_joint
from aotlens.observe import announce_compiled, announce_stage
from aotlens.options import CompileOptions, Compilers
from aotlens.partition.dead_draws import dead_by_draws
from aotlens.partition.overrides import unknown_overrides
from aotlens.partition.records import Partitioned
from aotlens.partition.regions import split_region
from aotlens.partition.stage import partition
from aotlens.partition.user_names import user_names
from aotlens.policy import Override, Policy
from aotlens.report.build import build_target
from aotlens.report.build_partition import Alternatives
from aotlens.report.build_programs import StageProgram, stage_programs
from aotlens.report.records import Target
from aotlens.runtime.owner import bind_module
from aotlens.runtime.records import LoadedModule
from aotlens.runtime.stage import load_module, write_module
from aotlens.torch_api import (
    FakeTensor,
    FakeTensorMode,
    flex_gradients_on_cpu,
    functionalizes_rng,
    make_shape_env,
    pytree,
    with_ragged_sizes,
    without_fake_mode,
)

LARGER_BUDGETS = (1.25, 1.5, 2, 3)
"""Times the budget that was asked for: what the report compares its peak with."""

STAGES = ("capture", "analysis", "joint", "partition", "codegen", "runtime")


@dataclass(frozen=True, slots=True)
class Compiled:
    """One target, compiled: the record of every stage, and what to call."""

    captured: Captured
    meta: ViewAndMutationMeta
    joint: JointProgram
    parts: Partitioned
    code: Generated
    module: LoadedModule
    call: Callable[..., Any]
    """Called as the user's function (direct), or with flat inputs (Dynamo)."""
    timings_ms: dict[str, float]
    """Wall time by stage; a backward that is compiled later adds its entry."""

    @property
    def name(self) -> str:
        return self.captured.subject.name

    @property
    def qualname(self) -> str:
        return self.captured.subject.qualname

    @property
    def frontend(self) -> Literal["direct", "dynamo"]:
        return self.captured.subject.frontend

    @property
    def source(self) -> str:
        """The module text that runs."""
        return self.module.text.source

    def target(self, what_if: tuple[str, ...] = (), dead_values: bool = False) -> Target:
        """The report's row, built anew at each call; `what_if` holds changes of the policy to weigh.

        With `dead_values` the graphs also run on random numbers, to find saved values that do not matter.

        Raises:
            UserError: a change that names nothing, or that cannot be made.
        """
        others = self._alternatives(what_if)
        if dead_values and self.parts.backward is not None:
            others = replace(others, checked=dead_by_draws(self.parts))
        return build_target(self.parts, self.code, self.module, self.timings_ms, others)

    def _alternatives(self, what_if: tuple[str, ...]) -> Alternatives:
        """The same joint program under the policies that the report compares with."""
        if self.parts.split is None:
            return Alternatives()
        policy = self.parts.split.policy
        weighed = what_if
        if policy.skips_unknown:
            weighed = tuple(change for change in what_if if not self.lacks(Policy.parse(change).overrides))
        return Alternatives(
            tuple((change, partition(self.joint, policy.changed(change))) for change in weighed),
            partition(self.joint, policy.without_budget()) if policy.budget is not None else None,
            tuple(partition(self.joint, policy.changed(f"budget={size}")) for size in self._larger_budgets()),
        )

    def _larger_budgets(self) -> list[int]:
        """In bytes, up to three times what was asked: the peak may be lower with more saved."""
        met = self.parts.split.choice.met if self.parts.split is not None else None
        return [] if met is None else [int(met.asked_bytes * times) for times in LARGER_BUDGETS]

    def lacks(self, overrides: Iterable[Override]) -> dict[Override, UnknownValueError]:
        """The overrides that name no value of this target, each with the error that says so."""
        split = self.parts.split
        if split is None:
            return {}
        return unknown_overrides(self.joint, split.sides, overrides, user_names(self.joint))

    def measure(self) -> tuple[str, ...]:
        """Time each kernel of the compiled graphs where it runs, on numbers that are made up.

        Later reports tell the times; returns how they were measured, or why not.
        """
        graphs = (self.code.forward, *((self.code.backward,) if self.code.backward is not None else ()))
        with COMPILING:
            announce_stage("measure")
            return tuple(dict.fromkeys(filter(None, (graph.measure() for graph in graphs))))

    def stages(self) -> tuple[StageProgram, ...]:
        """The stages up to the module text as programs that run, built anew at each call."""
        return stage_programs(self.parts)


def compile_direct(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: CompileOptions,
    name: str | None = None,
) -> Compiled:
    """Compile a function or module for arguments like these.

    Raises:
        UnsupportedError: a case that the engine refuses, with the user's line.
        BackendError: code generation failed.
    """
    clock = _Clock()
    with without_fake_mode():  # the caller's, if one is on; the recording enters its own
        with clock.stage("capture"):
            captured = _capture(fn, args, kwargs, options, name)
        compiled = _finish(captured, options, clock)
    announce_compiled(compiled)
    return compiled


def trace_direct(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: CompileOptions
) -> JointProgram:
    """The joint program of a function or module, for callers that go on with it by themselves."""
    return _build_joint(_capture(fn, args, kwargs, options, None), options, _Clock())


def compile_joint(joint: JointProgram, module: Any, options: CompileOptions) -> Compiled:
    """Compile `module`, a graph module of a joint program that its user may have edited."""
    clock = _Clock()
    with clock.stage("partition"):
        parts = partition(joint, options.partition, module)
    compiled = _generate(parts, options, clock)
    compiled = replace(compiled, call=compiled.module.call)
    announce_compiled(compiled)
    return compiled


def _capture(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: CompileOptions,
    name: str | None,
) -> Captured:
    ragged = _has_ragged(args, kwargs)
    mode = _fake_mode((args, kwargs, module_tensors(fn)), options.dynamic, ragged)
    settings = Settings(
        fake_mode=mode,
        decompositions=_decompositions(options),
        dynamic=options.dynamic or (mode.shape_env is not None and not ragged),
        observe_variables=options.observe_variables,
        allow_side_effects=options.allow_side_effects,
        split_region=partial(split_region, policy=options.partition),
    )
    with flex_gradients_on_cpu() if options.gpu is not None else nullcontext():
        captured = capture_direct(fn, args, kwargs, settings, name)
    if options.flat_result:
        captured = replace(captured, structure=replace(captured.structure, result=None))
    return captured


def compile_graph_module(gm: Any, example_inputs: Any, options: CompileOptions) -> Compiled:
    """Compile what Dynamo captured; `call` takes its flat inputs and returns a tuple."""
    clock = _Clock()
    with clock.stage("capture"):
        fixed = options.for_inductor  # its graphs cannot read a number out of a tensor
        captured = capture_graph_module(
            gm,
            list(example_inputs),
            _decompositions(options),
            partial(split_region, policy=options.partition),
            fixed_floats=fixed,
        )
    compiled = _finish(captured, options, clock)
    announce_compiled(compiled)
    return compiled


def _finish(captured: Captured, options: CompileOptions, clock: "_Clock") -> Compiled:
    joint = _build_joint(captured, options, clock)
    if options.for_inductor and isinstance(options.partition, Policy):
        with clock.stage("joint passes"):
            joint = with_joint_passes(joint, dict(options.inductor_config))
    with clock.stage("partition"):
        parts = partition(joint, options.partition)
    return _generate(parts, options, clock)


def _build_joint(captured: Captured, options: CompileOptions, clock: "_Clock") -> JointProgram:
    dynamic = captured.recorder.fake_mode.shape_env is not None
    with clock.stage("analysis"):
        meta = analyse(captured, options.keep_input_mutations)
    with clock.stage("joint"):
        every_result = isinstance(options.backend, Compilers) or not isinstance(options.partition, Policy)
        return build_joint(captured, meta, dynamic, every_result)


def _generate(parts: Partitioned, options: CompileOptions, clock: "_Clock") -> Compiled:
    captured = parts.joint.captured
    with clock.stage("codegen"):
        code = clock.timing_backward(generate(parts, options))
        text = write_module(parts, code)
    with clock.stage("runtime"):
        module = load_module(text, captured.subject.name)
        call = module.call
        function: Any = captured.subject.function
        if module_tensors(function):
            call = bind_module(function, module.call, captured.structure.rebound)
    return Compiled(captured, parts.joint.meta, parts.joint, parts, code, module, call, clock.timings_ms)


def other_call(compiled: Compiled, options: CompileOptions, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same recording with other code, called as `compiled.call` is; nobody hears of it.

    `fn` is the user's callable, or a copy, whose own tensors it takes.
    """
    captured = compiled.captured
    module = load_module(
        write_module(compiled.parts, generate(compiled.parts, options)), captured.subject.name
    )
    owner: Any = fn
    if compiled.frontend == "direct" and module_tensors(owner):
        return bind_module(owner, module.call, captured.structure.rebound)
    return module.call


def compile_part(
    compiled: Compiled, options: CompileOptions, program: Program
) -> Callable[[list[Any]], Any] | None:
    """Part of a target's graph by the same backend, as a whole graph; None where the text itself runs."""
    parts = replace(
        compiled.parts, forward=program, backward=None, saved=(), recomputed=(), modules=None, packing=None
    )
    with COMPILING:
        code = generate(parts, options).forward
        return code.compile() if code.compile is not None else None


def _fake_mode(given: Any, dynamic: bool, ragged: bool) -> FakeTensorMode:
    """The mode of fake arguments, with its symbols; a fresh one for real arguments."""
    for leaf in pytree.tree_leaves(given):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    symbolic = dynamic or ragged
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=make_shape_env() if symbolic else None)
    return with_ragged_sizes(mode)


def _has_ragged(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a jagged nested tensor is among them, whose ragged size needs an environment of sizes."""
    leaves = pytree.tree_leaves((args, kwargs))
    return any(isinstance(leaf, torch.Tensor) and leaf.layout is torch.jagged for leaf in leaves)


def _decompositions(options: CompileOptions) -> Decompositions:
    chosen = _chosen_decompositions(options)
    return with_random_rules(chosen) if options.functional_random or functionalizes_rng() else chosen


def _chosen_decompositions(options: CompileOptions) -> Decompositions:
    if options.decompositions is not None:
        return options.decompositions
    if options.for_inductor:
        return inductor_decompositions(dict(options.inductor_config))
    return {}


COMPILING = threading.RLock()
"""One stage runs at a time: torch's modes, and Inductor, hold state of the whole process."""


class _Clock:
    """Announces each stage and takes its time."""

    def __init__(self) -> None:
        self.timings_ms: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with COMPILING:
            announce_stage(name)
            started = time.perf_counter()
            try:
                yield
            finally:
                self.timings_ms[name] = (time.perf_counter() - started) * 1000

    def timing_backward(self, code: Generated) -> Generated:
        """The same code, with the lazy compilation of the backward timed too."""
        backward = code.backward
        if backward is None or backward.compile is None:
            return code
        compile_graph = backward.compile

        def timed() -> Callable[[list[Any]], Any]:
            with self.stage("codegen of the backward"):
                return compile_graph()

        return replace(code, backward=replace(backward, compile=timed))
