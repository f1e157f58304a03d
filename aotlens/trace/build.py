"""Build a report from a log.

Invariant: the newest graph of each compilation becomes a target; equal graphs of several ranks become one.
Compilations beyond the limits are listed and not read, so that opening a log costs only what is shown.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from aotlens.diagnostics.diagnose import diagnose
from aotlens.diagnostics.tracing import dynamo_findings, from_not_compiled, rank_findings
from aotlens.errors import TargetError
from aotlens.model.eager import NotCompiled
from aotlens.model.log import Log
from aotlens.model.report import GraphId, Input, Kernel, Mode, Partition, Report, Target
from aotlens.trace.compiled_functions import compiled_function
from aotlens.trace.cuda_graphs import cuda_graph_of
from aotlens.trace.dynamo_facts import dynamo_of, guards_of
from aotlens.trace.facts import CompilationFacts, GraphSet
from aotlens.trace.graph_memory import graph_memory
from aotlens.trace.graphs.metadata import parse_metadata
from aotlens.trace.graphs.records import Line
from aotlens.trace.inputs import inputs_of, outputs_of
from aotlens.trace.kernels import Codes, codes_of, kernels_of, memory_of
from aotlens.trace.line_seconds import line_seconds
from aotlens.trace.listing import SOME, Choice, Limits, Summary, chosen, listed_targets, summaries
from aotlens.trace.logs.kinds import unused_kinds
from aotlens.trace.logs.reader import Compilation, Trace
from aotlens.trace.origins import origins_of
from aotlens.trace.partition import partition_of
from aotlens.trace.phases import last_phase, seconds_by_phase
from aotlens.trace.ranks import ranks_of
from aotlens.trace.source.lines import Locate, whole_line
from aotlens.trace.source.source_lines import SourceLines, Sources, line_origins
from aotlens.trace.stages import stages_of, wrapper_of
from aotlens.view.kernels import line_costs, phase_costs
from aotlens.view.logs import ranks_text
from aotlens.view.quantities import every_digit

__all__ = [
    "NO_EXTRAS",
    "Explain",
    "Extras",
    "Recompile",
    "build_report",
    "build_targets",
]

Explain = Callable[[Partition, GraphSet, tuple[Input, ...], Locate], Partition]
"""Adds our solver's reasons to torch's choice: `partition_reasons.with_reasons`, which needs torch."""

Recompile = Callable[[tuple[Kernel, ...], Codes], tuple[Kernel, ...]]
"""Adds what compiling the logged kernels tells: `gpu.recompile.recompiled`, which needs torch and Triton."""


@dataclass(frozen=True, slots=True)
class Extras:
    """Facts that need torch here, and are left out without it; and how much of the log is read."""

    explain: Explain | None = None
    recompile: Recompile | None = None
    gpu_name: str = ""
    """The GPU for which kernels are recompiled."""
    limits: Limits = SOME
    drops_graphs: bool = False
    """True to drop the graphs and the code of each target once its findings are made, for a check of many."""


NO_EXTRAS = Extras()
NO_GPU_KERNELS = "the log has no generated code for a GPU, so nothing was compiled for one"
MAX_COMPILATIONS = 2_000
"""How many compilations the report on Dynamo covers."""


def build_report(
    trace: Trace,
    command: str,
    only: str | None = None,
    locate: Locate = whole_line,
    extras: Extras = NO_EXTRAS,
) -> Report:
    """Return the whole report.  Raises TargetError if `only` names no compilation of the log."""
    choice = chosen(trace, only, extras.limits, locate)
    if only is not None and not choice.read:
        known = ", ".join(_label(summary, locate) for summary in islice(summaries(trace), 20))
        raise TargetError(f"{trace.path} has no compilation `{only}`; it has {known or 'none with a graph'}")
    built = [
        (summary, target) for summary in choice.read for target in build_targets(summary, locate, extras)
    ]
    frames = {summary.compilation.code_id for summary in choice.read} if only is not None else None
    every = _different_compilations(trace, frames)
    compilations = [CompilationFacts(compilation) for compilation in every[:MAX_COMPILATIONS]]
    targets_of = _targets_of(built)
    dynamo = dynamo_of(compilations, lambda facts: tuple(target.name for target in targets_of(facts)), locate)
    by_line = line_seconds(
        compilations,
        lambda facts: [kernel for target in targets_of(facts) for kernel in target.kernels],
        locate,
    )
    dynamo = replace(dynamo, compile_seconds=replace(dynamo.compile_seconds, by_line=by_line))
    ranks = ranks_of(trace, locate) if only is None else None
    failures = tuple(_failures(compilations, locate))
    return Report(
        torch=next(
            (process.torch_version for process in trace.processes if process.torch_version), "unknown"
        ),
        python="unknown",
        command=command,
        targets=tuple(target for _, target in built),
        diagnostics=(
            *(from_not_compiled(record) for record in failures),
            *rank_findings(ranks),
            *dynamo_findings(dynamo),
        ),
        not_compiled=failures,
        dynamo=dynamo if dynamo.functions else None,
        ranks=ranks,
        incomplete=_incomplete(trace, None if extras.limits.reads_on else choice, len(every)),
        log=Log(
            str(trace.path),
            tuple(listed_targets(choice.listed, locate)),
            choice.count - len(choice.read),
            max(0, len(every) - MAX_COMPILATIONS),
            unused_kinds(trace.kinds()),
            trace.processes_of_a_rank,
        ),
    )


def _label(summary: Summary, locate: Locate) -> str:
    return f"{summary.function(locate).qualname} ({summary.compilation.id})"


def _different_compilations(trace: Trace, frames: set[str] | None) -> list[Compilation]:
    """Return the compilations of these code objects, or of all.

    The ranks of a run compile the same, so the first rank has the facts of all.
    """
    first = min((process.rank for process in trace.processes if process.rank is not None), default=None)
    return [
        compilation
        for process in trace.processes
        if process.rank in (first, None)
        for compilation in process.compilations
        if frames is None or compilation.code_id in frames
    ]


def _targets_of(built: list[tuple[Summary, Target]]) -> Callable[[CompilationFacts], Sequence[Target]]:
    """Return a function that finds the targets of a compilation."""
    targets: dict[int, list[Target]] = {}
    for summary, target in built:
        targets.setdefault(id(summary.compilation), []).append(target)
    return lambda facts: targets.get(id(facts.compilation), [])


def build_targets(
    summary: Summary, locate: Locate = whole_line, extras: Extras = NO_EXTRAS
) -> tuple[Target, ...]:
    """Return the compilation's targets: one, or one per part of a split graph."""
    facts = CompilationFacts(summary.compilation)
    return tuple(_target(graphs, summary, locate, extras) for graphs in facts.sets)


def _target(graphs: GraphSet, summary: Summary, locate: Locate, extras: Extras) -> Target:
    facts = graphs.facts
    locate = locate.for_target(graphs) if isinstance(locate, Sources) else locate
    function = compiled_function(facts, locate)
    part = f", part {graphs.index + 1} of {len(facts.sets)}" if len(facts.sets) > 1 else ""
    metadata = parse_metadata(graphs.metadata)
    inputs = inputs_of(graphs, metadata, locate)
    partition = partition_of(graphs, inputs, metadata, locate)
    if partition is not None and extras.explain is not None:
        partition = extras.explain(partition, graphs, inputs, locate)
    codes = codes_of(graphs, partition)
    kernels = kernels_of(graphs, codes, locate)
    if extras.recompile is not None:
        kernels = extras.recompile(kernels, codes)
    gpu_totals = phase_costs(kernels)
    mode: Mode = "training" if graphs.joint or graphs.forward else "inference"
    target = Target(
        name=f"{function.qualname}{part}{ranks_text(summary.ranks)}",
        qualname=f"{function.qualname}{part}",
        frontend="trace",
        mode=mode,
        span=locate(function.first_line, None),
        inputs=inputs,
        outputs=outputs_of(graphs, metadata, locate),
        stages=stages_of(graphs, locate),
        partition=partition,
        wrapper=wrapper_of(facts, graphs.index),
        kernels=kernels,
        gpu_totals=gpu_totals,
        gpu_lines=line_costs(kernels),
        gpu_name=extras.gpu_name,
        gpu_error=NO_GPU_KERNELS if extras.gpu_name and not gpu_totals else "",
        memory=memory_of(codes, kernels, partition) if codes else graph_memory(graphs, partition, locate),
        guards=guards_of(facts, locate),
        cuda_graph=cuda_graph_of(facts, mode == "training"),
        timings_ms={phase: 1000 * seconds for phase, seconds in seconds_by_phase(facts).items()},
        graph=_graph_id(facts.compilation.id),
    )
    target = replace(target, origins=origins_of(target, facts, metadata is not None))
    if isinstance(locate, SourceLines):
        target = replace(target, origins=(*target.origins, *line_origins(locate)))
    target = replace(target, diagnostics=diagnose(target))
    return replace(target, stages=(), kernels=()) if extras.drops_graphs else target


def _graph_id(compile_id: str) -> GraphId | None:
    """Return the number in `3/1`, or in `!0/3/1` under compiled autograd; None in `!0/-/-`."""
    frame, _, number = compile_id.rpartition("/")
    frame = frame.rpartition("/")[2]
    return GraphId(int(frame), int(number)) if frame.isdigit() and number.isdigit() else None


def _failures(compilations: Iterable[CompilationFacts], locate: Locate) -> Iterator[NotCompiled]:
    """Yield compilations that failed, or that never ended because the process died."""
    for facts in compilations:
        reason = facts.metric("fail_reason")
        if not reason and not facts.every("compilation_metrics") and (phase := last_phase(facts)):
            reason = f"the log ends while it was compiled, in `{phase}`: the process died, or still runs"
        if reason:
            function = compiled_function(facts, locate)
            span = locate(Line(function.file, function.line, function.name, ""), None)
            words = " ".join(reason.encode().decode("unicode_escape", "replace").split())[:500]
            yield NotCompiled(function.name, function.qualname, "whole function", words, "AL405", span)


def _incomplete(trace: Trace, choice: Choice | None, compilations: int) -> str | None:
    """Return what could not be read, and how much was not though all was wanted."""
    notes = list(trace.notes)
    if compilations > MAX_COMPILATIONS:
        notes.append(
            f"graph breaks and recompilations are those of the first {every_digit(MAX_COMPILATIONS)} of"
            f" {every_digit(compilations)} compilations"
        )
    if choice is not None and choice.count > len(choice.read):
        notes.append(
            f"{every_digit(len(choice.read))} of {every_digit(choice.count)} targets are read, the largest;"
            f" {trace.path}::ID reads one of the others"
        )
    return "; ".join(notes) or None
