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
    Spare,
    SpareKind,
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
from aotlens.model.target_facts import Leaving, Left, Origin, Reuse

__all__ = [
    "SCHEMA",
    "Base",
    "BlockerEffect",
    "BlockerKind",
    "Break",
    "BreakEffect",
    "BudgetResult",
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
    "Leaving",
    "Left",
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
    "Reuse",
    "SavedValue",
    "Seconds",
    "Severity",
    "Site",
    "Skipped",
    "Span",
    "Spare",
    "SpareKind",
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

MutationTypeName = Literal["not_mutated", "mutated_in_graph", "mutated_out_graph"]
OutputTypeName = Literal[
    "non_alias",
    "alias_of_input",
    "is_input",
    "alias_of_intermediate_save_as_output",
    "alias_of_intermediate",
    "alias_of_intermediate_base_is_user_output",
    "unsafe_view_alias",
    "custom_function_view",
]
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


@dataclass(frozen=True, slots=True)
class Input:
    """One row of the ledger of inputs: parameters, buffers and arguments, in call order."""

    index: int
    name: str
    """The user's name: `x`, `batch["ids"]`, `model.layers[3].weight`."""
    kind: str
    """`UserInput`, `Parameter`, `Buffer`, `SymInt`, `Constant`."""
    fqn: str | None
    """The fully qualified name of a parameter or buffer; None for an argument."""
    tensor: Tensor | None
    """None for an input that is no tensor."""
    mutation_type: MutationTypeName = "not_mutated"
    mutates_data: bool = False
    mutates_metadata: bool = False
    mutates_storage_metadata: bool = False
    hidden_from_autograd: bool = False
    under_no_grad: bool = False
    reason: str = ""
    """Why it is handled so, in the user's words."""
    sites: tuple[Site, ...] = ()
    """Every expression that mutates it."""
    metadata_sites: tuple[Site, ...] = ()
    """The sites that change its sizes, strides, storage offset or storage."""
    shares_storage_with: tuple[int, ...] = ()
    """Indices of other inputs on the same storage."""
    duplicate_of: int | None = None
    """The index of the first input that is the same tensor object; None when this is the first."""
    requires_grad: bool = False
    is_leaf: bool = True
    autograd_change: str | None = None
    """The change of its role in autograd: `made to require grad`; None for no change."""


@dataclass(frozen=True, slots=True)
class Base:
    """The base of an output that is a view."""

    kind: Literal["input", "intermediate", "output"]
    index: int


@dataclass(frozen=True, slots=True)
class Output:
    """One row of the ledger of outputs, in the order of the flattened result."""

    index: int
    name: str
    """Its position in the result: `out`, `out["logits"][0]`."""
    tensor: Tensor | None
    """None for an output that is no tensor."""
    output_type: OutputTypeName
    base: Base | None
    """None unless the output aliases something."""
    reason: str = ""
    sites: tuple[Site, ...] = ()
    requires_grad: bool = False
    left: bool = False
    """Whether the wrapper stores it outside (`Target.left`) instead of returning it to the caller."""


OF_GRADIENT = "part of the gradient of"
"""The start of the reason of a node that autograd recorded."""


@dataclass(frozen=True, slots=True)
class StageNode:
    """One node of a stage's program."""

    name: str
    op: str
    """`placeholder`, `call_function`, `get_attr` or `output`."""
    target: str
    """The operator (`aten.mm.default`, `getitem[1]`), or the slot's name for a placeholder."""
    inputs: tuple[str, ...]
    """Names of the nodes that it reads."""
    tensor: Tensor | None
    spans: tuple[Span, ...]
    """Innermost user frame first; empty only where `reason` says which stage added the node."""
    from_: tuple[str, ...] = ()
    """Names of its ancestors in the parent stage (JSON key `from`)."""
    reason: str = ""
    layer: str | None = None
    """The layer of the model that it belongs to (`blocks.3`); None outside of layers."""

    @property
    def is_of_gradient(self) -> bool:
        """Return True if it comes from the nodes whose gradient it computes."""
        return self.reason.startswith(OF_GRADIENT)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the pipeline as a program."""

    name: str
    """`captured`, `desugared`, `functional`, `decomposed`; then `joint`, `forward` and `backward`, or
    `inference`."""
    parent: str | None
    nodes: tuple[StageNode, ...]
    text: str
    """The program as a Python module with the function `NAME_graph`; runs with torch alone."""
    same_as: str | None = None
    """The earlier stage with the same program; `nodes` and `text` are then empty."""


@dataclass(frozen=True, slots=True)
class WrapperStep:
    """One thing that the runtime wrapper may do on each call."""

    name: str
    applied: bool
    reason: str
    lines: tuple[int, int] | None
    """First and last line in the wrapper's source, 1-based; None when not applied."""
    bytes_per_call: int = 0
    sites: tuple[Site, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The text of the module that runs, and its steps."""

    source: str
    steps: tuple[WrapperStep, ...]
    bound: tuple[str, ...] = ()
    """Names that the text cannot define itself (a large constant, a container class of the user's, a compiled
    graph): with any of these it does not run elsewhere."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A local variable that was bound to a tensor, at the name in its assignment."""

    span: Span
    name: str
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on sizes, or on a plain value, under which the compiled code serves a call."""

    expression: str
    """Over the user's names: `x.shape[0] > 4`, `self.scale == 2.0`."""
    reason: str
    span: Span | None = None
    """The expression or line that caused it; None when no line of the user's did."""
    sites: tuple[Site, ...] = ()


BUILT_IN = "its value is built into the compiled code"
"""The reason of a guard on a plain value."""

SpecialKind = Literal["effect", "higher_order"]


@dataclass(frozen=True, slots=True)
class SpecialOperator:
    """An operator with more than a result."""

    op: str
    kind: SpecialKind
    phase: Phase
    reason: str
    sites: tuple[Site, ...] = ()


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
    left: tuple[Left, ...] = ()
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
    reuse: Reuse | None = None
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
