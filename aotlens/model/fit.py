"""The memory of a whole step of a script: each allocation with its line and its lifetime.

Invariant: plain data, standard library only. A moment is a position in the one sequence of allocations and
releases of the step; no two of these share a moment, so that an allocator can be replayed from the
allocations alone.

The module is long because its records refer to one another: advice and ranks use the kinds and moments of a
fit, and a fit contains both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aotlens.model.source import Edit, Span

FitKind = Literal[
    "parameter",
    "buffer",
    "gradient",
    "optimizer state",
    "saved activation",
    "temporary",
    "working memory",
    "input",
    "output",
    "communication",
    "other",
    "gathered parameter",
    "library workspace",
]
"""The owner of an allocation: `working memory` is what a kernel allocates and frees again before it
returns; a `gathered parameter` is a whole parameter that FSDP2 gathers from the ranks' shards; a `library
workspace` is what cuBLAS keeps once a thread has called it."""

FitPhase = Literal["setup", "forward", "backward", "optimizer", "evaluation", "checkpoint saving"]
"""Part of a training loop: `setup` precedes the step; `optimizer` starts where the backward ends."""


@dataclass(frozen=True, slots=True)
class FitMoment:
    """When something happens in the step."""

    phase: FitPhase
    op: str = ""
    """The operator that runs, as `aten.mm.default`; empty for none."""
    span: Span | None = None
    """The user's line; of a backward operator the line of its forward."""
    moment: int = 0


@dataclass(frozen=True, slots=True)
class FitAllocation:
    """One storage: bytes, owner, and lifetime; its views are no allocations."""

    bytes: int
    kind: FitKind
    phase: FitPhase
    """The phase in which it is allocated."""
    made: int
    """The moment of its allocation; -1 where it is alive before the step."""
    freed: int | None
    """The moment of its release; None where it is alive after the step."""
    name: str | None = None
    """The user's name: `layers.0.weight`; for a gradient and optimizer state, that of the parameter."""
    state: str = ""
    """For optimizer state, the optimizer's name of it: `exp_avg`."""
    op: str = ""
    """The operator that allocates it, such as `aten.mm.default`."""
    span: Span | None = None
    """The user's line that allocates it; for a backward operator, the line of its forward."""
    tensor: str = ""
    """Type and shape, as `f32[256, 512]`."""
    graph: str | None = None
    """The compiled function that allocates it; None for eager code."""
    device: str = "cpu"

    def is_alive_at(self, moment: int) -> bool:
        """Return True from its allocation until just before its release."""
        return self.made <= moment and (self.freed is None or self.freed > moment)


def peak_of(allocations: Sequence[FitAllocation]) -> tuple[int, int]:
    """Return the first moment at which the most bytes are alive at once, and these bytes."""
    changes = [(each.made, each.bytes) for each in allocations]
    changes += [(each.freed, -each.bytes) for each in allocations if each.freed is not None]
    live_bytes = peak_bytes = 0
    moment = -1
    for changed_at, change_bytes in sorted(changes):
        live_bytes += change_bytes
        if live_bytes > peak_bytes:
            peak_bytes, moment = live_bytes, changed_at
    return moment, peak_bytes


@dataclass(frozen=True, slots=True)
class FitPoint:
    """A point of the curve: the most bytes alive while one operator runs."""

    moment: int
    live_bytes: int
    phase: FitPhase
    op: str = ""
    span: Span | None = None

    def as_moment(self) -> FitMoment:
        return FitMoment(self.phase, self.op, self.span, self.moment)


@dataclass(frozen=True, slots=True)
class KindBytes:
    """Bytes at the peak of one kind; optimizer state is one row per name."""

    kind: FitKind
    bytes: int
    state: str = ""
    """The optimizer's name of the state, `exp_avg`; empty for other kinds."""
    count: int = 0
    """Storages."""


def kinds_of(allocations: Iterable[FitAllocation]) -> tuple[KindBytes, ...]:
    """Return the bytes of each kind, the largest first."""
    rows: dict[tuple[FitKind, str], KindBytes] = {}
    for each in allocations:
        row = rows.get((each.kind, each.state), KindBytes(each.kind, 0, each.state))
        rows[each.kind, each.state] = replace(row, bytes=row.bytes + each.bytes, count=row.count + 1)
    return tuple(sorted(rows.values(), key=lambda row: -row.bytes))


@dataclass(frozen=True, slots=True)
class FitLine:
    """Bytes at the peak that one line allocated, of one kind."""

    span: Span | None
    """None for allocations without a line of the user's."""
    bytes: int
    kind: FitKind = "other"
    count: int = 0
    """Storages."""
    text: str = ""
    """The expression, as it was when the script ran."""


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The highest point of the curve in one phase."""

    phase: FitPhase
    peak_bytes: int
    moment: int


@dataclass(frozen=True, slots=True)
class GpuFit:
    """Whether the step fits a GPU."""

    gpu: str
    capacity_bytes: int
    """The memory that torch's allocator can reserve: the GPU's, minus context and reserve."""
    reserved_bytes: int
    """What torch's allocator reserves for the step, in segments."""
    ok: bool
    memory_bytes: int = 0
    """According to the data sheet."""
    context_bytes: int = 0
    """Assumed for the CUDA context and the libraries' kernels."""
    reserve_bytes: int = 0
    """Left free for workspaces of libraries that are not counted."""
    allocated_bytes: int = 0
    """Allocated blocks at the peak, each rounded to 512 bytes."""

    @property
    def margin_bytes(self) -> int:
        """Return the free memory; negative where it does not fit."""
        return self.capacity_bytes - self.reserved_bytes


@dataclass(frozen=True, slots=True)
class BatchPeak:
    """One run of the script, at one batch size or other size."""

    batch: int
    peak_bytes: int
    reserved_bytes: int = 0
    """What torch's allocator reserves on the GPU."""


@dataclass(frozen=True, slots=True)
class KindGrowth:
    """The bytes of one kind at the peak as a function of a size."""

    kind: FitKind
    fixed_bytes: int
    bytes_per_item: int
    bytes_per_square: int = 0
    """For each square of the size, as attention needs of a sequence length."""
    state: str = ""
    """The optimizer's name of the state, `exp_avg`; empty for other kinds."""

    def bytes_at(self, size: int) -> int:
        """Return the bytes at that size."""
        return self.fixed_bytes + self.bytes_per_item * size + self.bytes_per_square * size * size


def kind_name(row: FitAllocation | KindBytes | KindGrowth) -> str:
    """`parameter`, `optimizer state exp_avg`."""
    return f"{row.kind} {row.state}".strip()


@dataclass(frozen=True, slots=True)
class BatchFit:
    """The bytes at the step's peak as a function of a size, and the largest size that fits a GPU."""

    varied: str
    """What was varied, as the user wrote it: `BATCH`, `--batch-size`."""
    fixed_bytes: int
    bytes_per_item: int
    peaks: tuple[BatchPeak, ...]
    """All runs, the smallest size first."""
    error_bytes: int = 0
    """The measured peak at `largest` minus the computed one."""
    largest: int | None = None
    """The largest size that fits; 0 where not even 1 does."""
    capacity_bytes: int | None = None
    """What torch's allocator can reserve."""
    bytes_per_square: int = 0
    kinds: tuple[KindGrowth, ...] = ()
    """The same by kind, the largest first."""
    gpu: str = ""
    is_verified: bool = False
    """Whether a run at `largest` fits and one at the next size does not."""


@dataclass(frozen=True, slots=True)
class FitCollective:
    """One collective operator at one line, over the step."""

    op: str
    bytes: int
    """The larger of the bytes that one call reads and writes, on one rank."""
    calls: int
    group_size: int
    phase: FitPhase
    span: Span | None = None
    group: str = ""
    """The ranks of its process group where they are not all."""
    milliseconds: float = 0.0
    """All calls together, predicted for a ring at the stated bandwidth, without overlap."""


@dataclass(frozen=True, slots=True)
class UnevenShard:
    """A parameter whose sharded dimension is no multiple of the number of shards."""

    name: str
    """The user's name: `layers.0.weight`."""
    shape: tuple[int, ...]
    """Of the whole parameter."""
    local_shape: tuple[int, ...]
    """Of this rank's shard."""


@dataclass(frozen=True, slots=True)
class RankFit:
    """One rank of a distributed script."""

    rank: int
    step_peak_bytes: int
    by_kind: tuple[KindBytes, ...] = ()
    gathered_bytes: int = 0
    """The most bytes of gathered parameters that are alive at once."""
    communication_bytes: int = 0
    """The most bytes of communication buffers that are alive at once."""
    held: tuple[KindBytes, ...] = ()
    """What is alive at the end of the step, when the optimizer has run."""
    uneven_shards: tuple[UnevenShard, ...] = ()
    """Parameters of which the ranks hold shards of different sizes."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A script that runs on several ranks, some of which are simulated without other processes."""

    world_size: int
    ranks: tuple[RankFit, ...]
    collectives: tuple[FitCollective, ...] = ()
    """Of the rank that is shown, the slowest first."""
    bandwidth_gb_per_s: float = 0.0
    """Between two ranks, in 10^9 bytes a second, as the predicted times assume."""
    shown_rank: int = 0
    """The rank whose step the report describes: of those that were observed, one with the highest peak."""

    @property
    def milliseconds(self) -> float:
        """Return the predicted time of all collectives of a step, without overlap."""
        return sum(row.milliseconds for row in self.collectives)


AdviceOutcome = Literal["equal", "equal within tolerance", "not compared", "not tested"]
"""How the training with an edit compares with the training without it, both run on real tensors."""


@dataclass(frozen=True, slots=True)
class FitAdvice:
    """A change to the script that lowers the peak."""

    title: str
    kind: str
    """The kind of change, such as `checkpoint`, `fused optimizer`."""
    new_peak_bytes: int
    saved_bytes: int = 0
    edits: tuple[Edit, ...] = ()
    """Of the script as it is; empty for a suggestion without an edit."""
    cost: str = ""
    """Its cost in words: `12 % more work`."""
    extra_flops: int = 0
    """The additional work of a step; negative where it is less."""
    extra_operators: int = 0
    """Additional calls of operators in a step."""
    extra_milliseconds: float | None = None
    """Predicted for the GPU, by its data sheet; None without one."""
    is_tested: bool = False
    """Whether the script was run with the edits, and its peak was `new_peak_bytes`."""
    outcome: AdviceOutcome = "not tested"
    compared: str = ""
    """What was compared and how it differs, or why nothing was compared."""


@dataclass(frozen=True, slots=True)
class FitPlan:
    """The cheapest combination of advice whose peak is below a target, tested as a whole."""

    target_bytes: int
    peak_bytes: int
    """The peak with all edits."""
    titles: tuple[str, ...] = ()
    """The advice that it combines, in the order in which the edits are made."""
    edits: tuple[Edit, ...] = ()
    """All edits together, of the script as it is."""
    cost: str = ""
    extra_flops: int = 0
    extra_operators: int = 0
    extra_milliseconds: float | None = None
    """Predicted for the GPU; None without one."""
    outcome: AdviceOutcome = "not tested"
    compared: str = ""
    remaining: tuple[KindBytes, ...] = ()
    """The bytes at the peak with all edits, the largest first; empty if the target is reached."""
    floor: tuple[KindBytes, ...] = ()
    """What exists at once with all edits: its `floor`; empty likewise."""
    floor_at: FitMoment | None = None
    """The call that needs it; None likewise, or where these are the most gradients at once."""
    remaining_at: FitMoment | None = None
    """When that peak is reached; None likewise."""

    @property
    def is_reached(self) -> bool:
        return self.peak_bytes <= self.target_bytes

    @property
    def floor_bytes(self) -> int:
        return sum(row.bytes for row in self.floor)


@dataclass(frozen=True, slots=True)
class Fit:
    """The memory of one step of a training or inference loop, once it is periodic."""

    step_peak_bytes: int
    at: FitMoment
    """The moment of the peak, under the key of the report's published schema."""
    by_kind: tuple[KindBytes, ...] = ()
    """The bytes alive at the peak, the largest first."""
    by_line: tuple[FitLine, ...] = ()
    """The same by the line that allocated them, the largest first."""
    curve: tuple[FitPoint, ...] = ()
    fits: GpuFit | None = None
    """None without `--gpu`."""
    advice: tuple[FitAdvice, ...] = ()
    """The best first; empty unless requested."""
    plan: FitPlan | None = None
    """None without a target."""
    phases: tuple[PhasePeak, ...] = ()
    run_phases: tuple[PhasePeak, ...] = ()
    """The peaks of evaluation and of saving checkpoints anywhere in the run, by moments of the run."""
    allocations: tuple[FitAllocation, ...] = ()
    """Every allocation that is alive at some moment of the step, in order of allocation."""
    device: str = "cpu"
    """The device whose memory is counted."""
    is_fake: bool = True
    """Whether the script ran on tensors without memory."""
    step: int = 0
    """The step that is shown, from 1; 0 where the script has no optimizer and its whole run is shown."""
    calls_per_step: int = 1
    """The calls of an optimizer's `step` in one step."""
    is_periodic: bool = False
    """Whether the step before it made the same allocations."""
    setup_peak_bytes: int = 0
    """The highest point before the step that is shown."""
    batch: BatchFit | None = None
    """None where the batch was not varied."""
    distribution: Distribution | None = None
    """None for a script on one device."""
    assumptions: tuple[str, ...] = ()
    """What the prediction assumes, or leaves out."""
    step_flops: int = 0
    """The work of the step: an edit's additional work is the difference of two runs."""
    step_operators: int = 0
    """Calls of operators in the step, without views."""
    step_milliseconds: float | None = None
    """The least time of these operators on the GPU, by its data sheet, one after the other; None without
    one."""
    floor: tuple[KindBytes, ...] = ()
    """What exists at once and edits seldom lower: what is alive during the whole step, and gradients with
    what one call reads and writes that parts of the batch cannot replace."""
    floor_at: FitMoment | None = None
    """That call, such as one of batch norm; None where the most gradients at once need more."""

    @property
    def floor_bytes(self) -> int:
        return sum(row.bytes for row in self.floor)
