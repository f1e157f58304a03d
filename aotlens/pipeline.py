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

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.analysis.stage import analyse
from aotlens.capture.direct import capture_direct
from aotlens.capture.dynamo import GraphCall, capture_graph_module, graph_call
from aotlens.capture.inputs.module_tensors import module_tensors
from aotlens.capture.modes import Settings
from aotlens.capture.records import Captured, Subject
from aotlens.capture.symbols.int_inputs import compile_with_int_symbols, fake_mode_for, has_ragged
from aotlens.clock import COMPILING, Clock
from aotlens.codegen.decompositions import decompositions_for
from aotlens.codegen.records import Generated
from aotlens.codegen.stage import generate
from aotlens.compile_cache.entry import CacheEntry
from aotlens.compile_cache.lookup import (
    NO_GRAPH,
    graph_entry,
    is_cache_enabled,
    module_constants,
    store_result,
)
from aotlens.compile_cache.replay import Replay
from aotlens.compile_cache.restore import restored_text
from aotlens.eager.fallback import with_eager_backward
from aotlens.errors import UnknownValueError
from aotlens.ir.program import Program
from aotlens.joint.inductor_passes import with_joint_passes
from aotlens.joint.records import JointProgram
from aotlens.joint.stage import build_joint
from aotlens.observe import announce_compiled, announce_target, running_stage
from aotlens.options import CompileOptions, Compilers
from aotlens.partition.dead_values import dead_on_random_runs
from aotlens.partition.overrides import unknown_overrides
from aotlens.partition.records import Partitioned
from aotlens.partition.regions import split_region
from aotlens.partition.stage import partition
from aotlens.partition.user_names import user_names
from aotlens.policy import Override, Policy
from aotlens.runtime.module_call import bind_module
from aotlens.runtime.module_text import LoadedModule
from aotlens.runtime.stage import load_module, write_module
from aotlens.torch_api.fake import without_fake_mode
from aotlens.torch_api.hop import allow_flex_gradients_on_cpu

if TYPE_CHECKING:  # the report is built when somebody asks for it
    from aotlens.build.partition import Alternatives
    from aotlens.build.programs import StageProgram
    from aotlens.model.report import Target

LARGER_BUDGETS = (1.25, 1.5, 2, 3)
"""Times the budget that was asked for: what the report compares its peak with."""

STAGES = ("capture", "analysis", "joint", "partition", "codegen", "runtime")


@dataclass(frozen=True, slots=True)
class Stages:
    """The record of every stage up to the code."""

    captured: Captured
    meta: ViewAndMutationMeta
    joint: JointProgram
    parts: Partitioned
    code: Generated


@dataclass(frozen=True, slots=True)
class Compiled:
    """One target, compiled: the record of every stage, and what to call."""

    subject: Subject
    records: Stages | None
    """None for a result from disk, whose stages run when somebody asks for their records."""
    module: LoadedModule
    call: Callable[..., Any]
    """Called as the user's function (direct), or with flat inputs (Dynamo)."""
    timings_ms: dict[str, float]
    """Wall time by stage; a backward that is compiled later adds its entry."""
    shelf: CacheEntry | None = None
    """Its place on disk; None where results are not kept."""
    again: Callable[[], "Compiled"] | None = None
    """Compiles a result from disk after all, once; its own text and code go on running."""

    @property
    def full(self) -> "Compiled":
        """The one that has the records."""
        return self if self.again is None else self.again()

    @property
    def stage_records(self) -> Stages:
        records = self.full.records
        assert records is not None  # what is compiled here has them
        return records

    @property
    def captured(self) -> Captured:
        return self.stage_records.captured

    @property
    def meta(self) -> ViewAndMutationMeta:
        return self.stage_records.meta

    @property
    def joint(self) -> JointProgram:
        return self.stage_records.joint

    @property
    def parts(self) -> Partitioned:
        return self.stage_records.parts

    @property
    def code(self) -> Generated:
        return self.stage_records.code

    @property
    def name(self) -> str:
        return self.subject.name

    @property
    def qualname(self) -> str:
        return self.subject.qualname

    @property
    def frontend(self) -> Literal["direct", "dynamo"]:
        return self.subject.frontend

    @property
    def source(self) -> str:
        """The module text that runs."""
        return self.module.text.source

    def target(self, what_if: tuple[str, ...] = (), dead_values: bool = False) -> "Target":
        """The report's row, built anew at each call; `what_if` holds changes of the policy to weigh.

        With `dead_values` the graphs also run on random numbers, to find saved values that do not matter.

        Raises:
            UserError: a change that names nothing, or that cannot be made.
        """
        plain = not what_if and not dead_values
        found = self.shelf.target() if self.shelf is not None and self.again is not None and plain else None
        if found is None:
            found = self.full._built(what_if, dead_values)
            if self.shelf is not None and plain:
                self.shelf.put_target(found)
        timings = {name: round(elapsed, 3) for name, elapsed in self.timings_ms.items()}
        reuse = self.shelf.reuse() if self.shelf is not None else None
        return replace(found, timings_ms=timings, reuse=reuse, graph=self.subject.graph)

    def _built(self, what_if: tuple[str, ...], dead_values: bool) -> "Target":
        others = self._alternatives(what_if)
        if dead_values and self.parts.backward is not None:
            others = replace(others, checked=dead_on_random_runs(self.parts))
        from aotlens.build.target import build_target

        return build_target(self.parts, self.code, self.module, self.timings_ms, others)

    def _alternatives(self, what_if: tuple[str, ...]) -> "Alternatives":
        """The same joint program under the policies that the report compares with."""
        from aotlens.build.partition import Alternatives

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
        with COMPILING, running_stage("measure"):
            return tuple(dict.fromkeys(filter(None, (graph.measure() for graph in graphs))))

    def stages(self) -> tuple["StageProgram", ...]:
        """The stages up to the module text as programs that run, built anew at each call."""
        from aotlens.build.programs import stage_programs

        return stage_programs(self.parts)


class DirectCall(NamedTuple):
    """A function or module, and the arguments that it is compiled for."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str | None = None


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
    clock, call = Clock(), DirectCall(fn, args, kwargs, name)

    def compiled(symbolic_numbers: bool) -> Compiled:
        with clock.stage("capture"):
            captured = _capture(call, options, symbolic_numbers)
        announce_target(captured.subject.name)
        shelf = CacheEntry.refused(captured.subject.name, NO_GRAPH) if is_cache_enabled(options) else None
        return _finish(captured, options, clock, shelf)

    with without_fake_mode():  # the caller's, if one is on; the recording enters its own
        found = compile_with_int_symbols(compiled, options.dynamic, (args, kwargs))
    announce_compiled(found)
    return found


def trace_direct(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: CompileOptions
) -> JointProgram:
    """The joint program of a function or module, for callers that go on with it by themselves."""
    call = DirectCall(fn, args, kwargs)

    def traced(symbolic_numbers: bool) -> JointProgram:
        return _build_joint(_capture(call, options, symbolic_numbers), options, Clock())

    return compile_with_int_symbols(traced, options.dynamic, (args, kwargs))


def compile_joint(joint: JointProgram, module: Any, options: CompileOptions) -> Compiled:
    """Compile `module`, a graph module of a joint program that its user may have edited."""
    clock = Clock()
    with clock.stage("partition"):
        parts = partition(joint, options.partition, module)
    compiled = _generate(parts, options, clock)
    compiled = replace(compiled, call=compiled.module.call)
    announce_compiled(compiled)
    return compiled


def _capture(call: DirectCall, options: CompileOptions, symbolic_numbers: bool) -> Captured:
    fn, args, kwargs, name = call
    ragged = has_ragged(args, kwargs)
    mode = fake_mode_for((args, kwargs, module_tensors(fn)), options.dynamic, ragged)
    settings = Settings(
        fake_mode=mode,
        decompositions=decompositions_for(options),
        dynamic=options.dynamic or (mode.shape_env is not None and not ragged),
        symbolic_numbers=symbolic_numbers,
        observe_variables=options.observe_variables,
        side_effects=options.side_effects,
        split_region=partial(split_region, policy=options.partition),
    )
    with allow_flex_gradients_on_cpu() if options.gpu is not None else nullcontext():
        captured = capture_direct(fn, args, kwargs, settings, name)
    if options.flat_result:
        captured = replace(captured, structure=captured.structure.flat())
    return captured


def compile_graph_module(gm: Any, example_inputs: Any, options: CompileOptions) -> Compiled:
    """Compile what Dynamo captured; `call` takes its flat inputs and returns a tuple."""
    clock, shelf, asks = Clock(), None, is_cache_enabled(options)
    with clock.stage("cache" if asks else "capture"):
        given = graph_call(gm, example_inputs)
        announce_target(given.subject.name)
        if asks:
            shelf, twins = graph_entry(given, options)
            if shelf.find() is not None:
                found = _from_disk(shelf, Replay.of(given, twins), options, clock)
                if found is not None:
                    announce_compiled(found)
                    return found
    compiled = _compile_graph(given, options, clock, shelf)
    if shelf is not None:
        with clock.stage("cache"):
            took_ms = sum(clock.timings_ms.values())
            store_result(shelf, compiled.module.text, compiled.code, module_constants(gm), took_ms)
    announce_compiled(compiled)
    return compiled


def _compile_graph(
    given: GraphCall, options: CompileOptions, clock: Clock, shelf: CacheEntry | None = None
) -> Compiled:
    with clock.stage("capture"):
        fixed = options.for_inductor  # its graphs cannot read a number out of a tensor
        split = partial(split_region, policy=options.partition)
        captured = capture_graph_module(given, decompositions_for(options), split, fixed_floats=fixed)
    return _finish(captured, options, clock, shelf)


def _from_disk(shelf: CacheEntry, replay: Replay, options: CompileOptions, clock: Clock) -> Compiled | None:
    """What another process has compiled; None where its code is gone or cannot be loaded."""
    given = replay.call

    @cache
    def again() -> Compiled:
        with replay.standing() as call:
            return _compile_graph(call, options, Clock())

    text = restored_text(shelf, given.graph, again, (dict(options.inductor_config), clock))
    if text is None:
        return None
    module = load_module(text, given.subject.name)
    call = bind_module(given.graph, module.call) if given.owned else module.call
    return Compiled(given.subject, None, module, call, clock.timings_ms, shelf, again)


def _finish(
    captured: Captured, options: CompileOptions, clock: Clock, shelf: CacheEntry | None = None
) -> Compiled:
    joint = _build_joint(captured, options, clock)
    if options.for_inductor and isinstance(options.partition, Policy):
        with clock.stage("joint passes"):
            joint = with_joint_passes(joint, dict(options.inductor_config))
    with clock.stage("partition"):
        parts = partition(joint, options.partition)
    return _generate(parts, options, clock, shelf)


def _build_joint(captured: Captured, options: CompileOptions, clock: Clock) -> JointProgram:
    dynamic = captured.recorder.fake_mode.shape_env is not None
    with clock.stage("analysis"):
        meta = analyse(captured, options.keep_input_mutations)
    with clock.stage("joint"):
        every_result = isinstance(options.backend, Compilers) or not isinstance(options.partition, Policy)
        return build_joint(captured, meta, dynamic, every_result)


def _generate(
    parts: Partitioned, options: CompileOptions, clock: Clock, shelf: CacheEntry | None = None
) -> Compiled:
    captured = parts.joint.captured
    with clock.stage("codegen"):
        code = generate(parts, options)
        if shelf is not None:
            code = shelf.watching_backward(code)
        code = _timing_backward(code, clock)
        if not options.strict:
            code = with_eager_backward(code, captured.subject)
        text = write_module(parts, code)
    with clock.stage("runtime"):
        module = load_module(text, captured.subject.name)
        call = module.call
        function: Any = captured.subject.function
        if module_tensors(function):
            call = bind_module(function, module.call, captured.structure.rebound)
    stages = Stages(captured, parts.joint.meta, parts.joint, parts, code)
    return Compiled(captured.subject, stages, module, call, clock.timings_ms, shelf)


def call_with_other_code(
    compiled: Compiled, options: CompileOptions, fn: Callable[..., Any]
) -> Callable[..., Any]:
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


def _timing_backward(code: Generated, clock: Clock) -> Generated:
    """The same code, with the lazy compilation of the backward timed too."""
    backward = code.backward
    if backward is None or backward.compile is None:
        return code
    compile_graph = backward.compile

    def timed() -> Callable[[list[Any]], Any]:
        with clock.stage("codegen of the backward"):
            return compile_graph()

    return replace(code, backward=replace(backward, compile=timed))
