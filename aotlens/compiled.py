"""One compiled target: the record of every stage, the function to call, and what-ifs of the policy.

Invariant: a what-if runs stages on the records that are here and changes none of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.dynamo import GraphCall
from aotlens.capture.records import Captured, Subject
from aotlens.clock import COMPILING
from aotlens.codegen.records import Generated
from aotlens.codegen.stage import generate
from aotlens.compilation import Compilation, bound_call
from aotlens.compile_cache.entry import CacheEntry
from aotlens.compile_cache.replay import Replay
from aotlens.compile_cache.restore import restored_text
from aotlens.errors import UnknownValueError
from aotlens.ir.program import Program
from aotlens.joint.records import JointProgram
from aotlens.observe import running_stage
from aotlens.options import CompileOptions
from aotlens.partition.overrides import unknown_overrides
from aotlens.partition.records import Partitioned
from aotlens.partition.stage import partition
from aotlens.partition.user_names import user_names
from aotlens.policy import Override, Policy
from aotlens.runtime.module_call import bind_module
from aotlens.runtime.module_text import LoadedModule
from aotlens.runtime.stage import load_module, write_module

if TYPE_CHECKING:  # the report is built when somebody asks for it
    from aotlens.build.partition import Alternatives
    from aotlens.build.programs import StageProgram
    from aotlens.model.report import Target

LARGER_BUDGETS = (1.25, 1.5, 2, 3)
"""Multiples of the memory budget whose peaks the report compares with the budget's own."""


@dataclass(frozen=True, slots=True)
class StageRecords:
    """The record of every stage up to the code."""

    parts: Partitioned
    """With the joint program, which has the records of capture and analysis."""
    code: Generated


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compiled target: the record of every stage, and the function to call."""

    subject: Subject
    records: StageRecords | None
    """None for a result from the cache, whose stages run when somebody asks for their records."""
    module: LoadedModule
    call: Callable[..., Any]
    """Called as the user's function (direct), or with flat inputs (Dynamo)."""
    timings_ms: dict[str, float]
    """Wall time by stage; a backward that is compiled later adds its entry."""
    cache_entry: CacheEntry | None = None
    """The entry in the on-disk cache; None if the cache is off."""
    run_stages: Callable[[], "Compiled"] | None = None
    """Runs the stages of a result from the cache, once; the cached text and code keep running."""

    @property
    def with_records(self) -> "Compiled":
        """This target or, for a result from the cache, the same one compiled by running its stages."""
        return self if self.run_stages is None else self.run_stages()

    @property
    def stage_records(self) -> StageRecords:
        records = self.with_records.records
        assert records is not None  # a target whose stages ran has them
        return records

    @property
    def captured(self) -> Captured:
        return self.joint.captured

    @property
    def meta(self) -> ViewAndMutationMeta:
        return self.joint.meta

    @property
    def joint(self) -> JointProgram:
        return self.parts.joint

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
        """Build the report's record of this target; `what_if` names policy changes to weigh.

        With `dead_values` the graphs also run on random numbers, to find saved values that do not matter.

        Raises:
            UserError: a change that names nothing, or that cannot be made.
        """
        cacheable = not what_if and not dead_values
        entry, target = self.cache_entry, None
        if entry is not None and self.run_stages is not None and cacheable:
            target = entry.target()
        if target is None:
            target = self.with_records._build_target(what_if, dead_values)
            if entry is not None and cacheable:
                entry.put_target(target)
        timings = {name: round(elapsed, 3) for name, elapsed in self.timings_ms.items()}
        answer = entry.answer() if entry is not None else None
        return replace(target, timings_ms=timings, cache_answer=answer, graph=self.subject.graph)

    def answers(self, what_if: tuple[str, ...]) -> "Target":
        """Build a record with the answers to what-ifs, and of the rest only what identifies the capture.

        Raises:
            UserError: as `target`.
        """
        from aotlens.build.target import build_answers

        return build_answers(self.parts, self._alternatives(what_if))

    def _build_target(self, what_if: tuple[str, ...], dead_values: bool) -> "Target":
        from aotlens.build.dead_values import dead_on_random_runs
        from aotlens.build.target import build_target

        alternatives = self._alternatives(what_if)
        if dead_values and self.parts.backward is not None:
            alternatives = replace(alternatives, checked=dead_on_random_runs(self.parts))
        return build_target(self.parts, self.code, self.module, self.timings_ms, alternatives)

    def _alternatives(self, what_if: tuple[str, ...]) -> "Alternatives":
        """Partition the joint program under the other policies that the report compares with."""
        from aotlens.build.partition import Alternatives

        if self.parts.split is None:
            return Alternatives()
        policy, changes = self.parts.split.policy, what_if
        if policy.skips_unknown:
            changes = tuple(
                change for change in what_if if not self.unknown_overrides(Policy.parse(change).overrides)
            )
        return Alternatives(
            tuple((change, partition(self.joint, policy.changed(change))) for change in changes),
            partition(self.joint, policy.without_budget()) if policy.budget is not None else None,
            tuple(partition(self.joint, policy.changed(f"budget={size}")) for size in self._larger_budgets()),
        )

    def _larger_budgets(self) -> list[int]:
        """In bytes, up to three times the budget: the peak may be lower with more values saved."""
        met = self.parts.split.choice.budget_solution if self.parts.split is not None else None
        return [] if met is None else [int(met.limit_bytes * times) for times in LARGER_BUDGETS]

    def unknown_overrides(self, overrides: Iterable[Override]) -> dict[Override, UnknownValueError]:
        """Return the overrides that name no value of this target, each with the error that says so."""
        split = self.parts.split
        if split is None:
            return {}
        return unknown_overrides(self.joint, split.sides, overrides, user_names(self.joint))

    def measure(self) -> tuple[str, ...]:
        """Time each kernel of the compiled graphs where it runs, on made-up numbers, for later reports.

        Returns how the kernels were measured, or why not.
        """
        graphs = (self.code.forward, *((self.code.backward,) if self.code.backward is not None else ()))
        with COMPILING, running_stage("measure"):
            return tuple(dict.fromkeys(filter(None, (graph.measure() for graph in graphs))))

    def stages(self) -> tuple["StageProgram", ...]:
        """Build the stages up to the module text as programs that run."""
        from aotlens.build.programs import stage_programs

        return stage_programs(self.parts)


def restore_compiled(
    replay: Replay, compilation: Compilation, compile_call: Callable[[GraphCall, Compilation], Compiled]
) -> Compiled | None:
    """Return what an earlier process compiled; None if its code is missing or cannot be loaded.

    `compile_call` runs the stages on the graph when somebody asks for their records.
    """
    entry, call = compilation.cache_entry, replay.call
    assert entry is not None  # the caller has found it

    @cache
    def run_stages() -> Compiled:
        with replay.restored() as replayed:
            return compile_call(replayed, Compilation(compilation.options))

    inductor_config = dict(compilation.options.inductor_config)
    text = restored_text(entry, call.graph, run_stages, inductor_config, compilation.clock)
    if text is None:
        return None
    module = load_module(text, call.subject.name)
    function = bind_module(call.graph, module.call) if call.owned else module.call
    return Compiled(call.subject, None, module, function, compilation.clock.timings_ms, entry, run_stages)


def call_with_other_code(
    compiled: Compiled, options: CompileOptions, fn: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function called as `compiled.call` is, with code generated anew by `options`.

    It is not announced to observers.  `fn` is the user's callable, or a copy whose own tensors are used.
    """
    parts, captured = compiled.parts, compiled.captured
    module = load_module(write_module(parts, generate(parts, options)), captured.subject.name)
    return bound_call(module, fn, captured) if compiled.frontend == "direct" else module.call


def compile_part(
    compiled: Compiled, options: CompileOptions, program: Program
) -> Callable[[list[Any]], Any] | None:
    """Compile part of a target's graph, as a whole graph, by a backend; None where its text itself runs."""
    parts = replace(
        compiled.parts, forward=program, backward=None, saved=(), recomputed=(), modules=None, packing=None
    )
    with COMPILING:
        code = generate(parts, options).forward
        return code.compile() if code.compile is not None else None
