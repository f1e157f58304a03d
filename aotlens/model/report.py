"""The report: the results of one trace, as frozen plain data.

Invariant: standard library only, and every record round-trips through JSON (`aotlens.model.codec`), so that a
front end can show a report without torch and the engine. Field names are the JSON keys of schema
`aotlens.report/1`; a string under each field gives its meaning, its unit, and when it is None.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from aotlens.model.cuda_graphs import (
    BlockerEffect,
    BlockerKind,
    CudaGraph,
    CudaGraphBlocker,
    CudaGraphVerdict,
)
from aotlens.model.dynamo import (
    Break,
    BreakEffect,
    CacheUse,
    Cause,
    CauseKind,
    Compilation,
    CompileSeconds,
    Dynamo,
    DynamoFunction,
    DynamoGuard,
    LineSeconds,
    Seconds,
    Skipped,
    Specialisation,
    SpecialisationKind,
)
from aotlens.model.eager import NotCompiled, NotCompiledCause
from aotlens.model.fit import Fit
from aotlens.model.kernels import (
    Kernel,
    KernelAccess,
    KernelChoice,
    KernelConfig,
    KernelKind,
    KernelShare,
    KernelText,
    LineCost,
    PhaseCost,
    Unfused,
    UnfusedCode,
)
from aotlens.model.log import Log
from aotlens.model.memory_snapshot import FailureMatch, MemorySnapshot
from aotlens.model.partition import (
    BudgetResult,
    Certificate,
    Freedom,
    FrontierPoint,
    LiveValue,
    Memory,
    Owner,
    Partition,
    RecomputedValue,
    Region,
    SavedValue,
    Saving,
    SavingKind,
    Totals,
    Use,
    WhatIf,
)
from aotlens.model.ranks import Ranks
from aotlens.model.source import (
    Cost,
    Dimension,
    Edit,
    FailingBackward,
    Fix,
    GraphId,
    Phase,
    Related,
    Site,
    Span,
    Tensor,
    Verdict,
)
from aotlens.model.target_facts import CacheAnswer, Origin, SideEffect, SideEffectHandling
from aotlens.model.target_records import (
    Base,
    Guard,
    Input,
    MutationTypeName,
    Output,
    OutputTypeName,
    SpecialKind,
    SpecialOperator,
    Stage,
    StageNode,
    Variable,
    Wrapper,
    WrapperStep,
)

__all__ = [
    "AFTER",
    "SCHEMA",
    "Base",
    "BlockerEffect",
    "BlockerKind",
    "Break",
    "BreakEffect",
    "BudgetResult",
    "CacheAnswer",
    "CacheUse",
    "Cause",
    "CauseKind",
    "Certificate",
    "Compilation",
    "CompileSeconds",
    "CudaGraph",
    "CudaGraphBlocker",
    "CudaGraphVerdict",
    "Diagnostic",
    "Dimension",
    "Dynamo",
    "DynamoFunction",
    "DynamoGuard",
    "Edit",
    "FailingBackward",
    "Fit",
    "Fix",
    "Freedom",
    "Frontend",
    "FrontierPoint",
    "GraphId",
    "Guard",
    "Input",
    "Kernel",
    "KernelAccess",
    "KernelChoice",
    "KernelConfig",
    "KernelKind",
    "KernelShare",
    "KernelText",
    "LineCost",
    "LineSeconds",
    "LiveValue",
    "Log",
    "Memory",
    "Mode",
    "MutationTypeName",
    "NotCompiled",
    "NotCompiledCause",
    "Origin",
    "Output",
    "OutputTypeName",
    "Owner",
    "Partition",
    "Phase",
    "PhaseCost",
    "Ranks",
    "RecomputedValue",
    "Region",
    "Related",
    "Report",
    "SavedValue",
    "Saving",
    "SavingKind",
    "Seconds",
    "Severity",
    "SideEffect",
    "SideEffectHandling",
    "Site",
    "Skipped",
    "Span",
    "SpecialKind",
    "SpecialOperator",
    "Specialisation",
    "SpecialisationKind",
    "Stage",
    "StageNode",
    "Target",
    "Tensor",
    "Totals",
    "Unfused",
    "UnfusedCode",
    "Use",
    "Variable",
    "Verdict",
    "WhatIf",
    "Wrapper",
    "WrapperStep",
]

SCHEMA = "aotlens.report/1"

Severity = Literal["error", "warning", "information", "hint"]
Frontend = Literal["direct", "dynamo", "trace"]
"""`trace`: built from the log of a process that ran somewhere, with TORCH_TRACE."""
Mode = Literal["training", "inference"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding, at one location, with a stable code (`AL101`)."""

    code: str
    severity: Severity
    message: str
    span: Span | None
    """None only when the finding concerns the whole script."""
    related: tuple[Related, ...] = ()
    fixes: tuple[Fix, ...] = ()
    cost: Cost | None = None
    """Its cost; None where that is not a number, as for a wrong result."""


AFTER = " after line "
"""Part of the name of the rest after a graph break: `Net.forward after line 14`."""


@dataclass(frozen=True, slots=True)
class Target:
    """One function or module, captured with one input signature."""

    name: str
    qualname: str
    frontend: Frontend
    mode: Mode
    span: Span | None
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    side_effects: tuple[SideEffect, ...] = ()
    """The side effects of the function on attributes, containers, closure variables and globals."""
    stages: tuple[Stage, ...] = ()
    partition: Partition | None = None
    """None in inference: nothing is saved."""
    wrapper: Wrapper | None = None
    kernels: tuple[Kernel, ...] = ()
    """In call order, the forward's first; with a GPU target its kernels come after those of the backend."""
    gpu_assumptions: tuple[str, ...] = ()
    """Assumptions made when the graphs, recorded on the CPU, were moved to the GPU target."""
    measured: tuple[str, ...] = ()
    """How the kernels' times were measured, or why they were not; empty unless requested."""
    gpu_error: str = ""
    """Why no code could be generated for the GPU target; empty where it was, and without one."""
    cuda_graph: CudaGraph | None = None
    """Whether CUDA graphs can record it; None for a target that has nothing to do with a GPU."""
    gpu_totals: tuple[PhaseCost, ...] = ()
    """The totals of the kernels for the GPU target, by phase; empty without one."""
    gpu_lines: tuple[LineCost, ...] = ()
    """The user's lines on the GPU target, the costliest first."""
    gpu_name: str = ""
    """The requested GPU, `H200`; empty without one."""
    memory: Memory | None = None
    variables: tuple[Variable, ...] = ()
    guards: tuple[Guard, ...] = ()
    """Under dynamic shapes, the conditions on sizes that the compilation assumed."""
    operators: tuple[SpecialOperator, ...] = ()
    """Effects and higher-order operators, in the order in which they run."""
    failing_backward: FailingBackward | None = None
    """Set where the backward raises, of all results or of some, as eager's does."""
    verified: Verdict | None = None
    """How a call compared with eager; None unless requested, or if it was never called."""
    timings_ms: dict[str, float] = field(default_factory=dict)
    """Wall time by stage name, in the order in which the stages ran."""
    cache_answer: CacheAnswer | None = None
    """The use of the cache of compiled results; None where it is off."""
    graph: GraphId | None = None
    """Its number among Dynamo's graphs; None for the direct frontend."""
    diagnostics: tuple[Diagnostic, ...] = ()
    origins: tuple[Origin, ...] = ()
    """How the facts of a target from a log are known; empty for a target traced here."""

    @property
    def function(self) -> str:
        """Return the qualified name of the function, also for the rest after a graph break in it."""
        return self.qualname.partition(AFTER)[0]

    @property
    def is_resumed(self) -> bool:
        """Return True for the rest after a graph break."""
        return AFTER in self.qualname

    @property
    def file(self) -> str | None:
        """Return the file of its definition; None where it has no location."""
        return self.span.file if self.span else None

    def stage(self, name: str) -> Stage | None:
        """Return the stage of that name, or None when this target has none; one that changes nothing has the
        nodes and the text of its `same_as`."""
        record = next((stage for stage in self.stages if stage.name == name), None)
        if record is None or record.same_as is None:
            return record
        same = self.stage(record.same_as)
        return record if same is None else replace(same, name=record.name, same_as=record.same_as)


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one command for one script."""

    torch: str
    python: str
    command: str
    targets: tuple[Target, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    """Findings that belong to no target (the script's own failures)."""
    not_compiled: tuple[NotCompiled, ...] = ()
    """What was passed to `torch.compile` and ran in eager, whole functions and graphs first."""
    dynamo: Dynamo | None = None
    """Dynamo's records while the script ran; None where it compiled nothing."""
    ranks: Ranks | None = None
    """The compilations of the ranks of the run; None for a report of one process."""
    fit: Fit | None = None
    """The memory of a whole step; None for other commands than `aotlens fit`."""
    memory_snapshots: tuple[MemorySnapshot, ...] = ()
    """The devices of a memory snapshot, as `aotlens fit SNAPSHOT.pickle` reads it."""
    failure_matches: tuple[FailureMatch, ...] = ()
    """The devices on which an allocation failed, compared with `fit`; empty without snapshot and script."""
    incomplete: str | None = None
    """Why the report may lack targets; None when the script ran to its end."""
    log: Log | None = None
    """What the log of a `trace` report has besides; None for a report of a script."""
    schema: str = SCHEMA
