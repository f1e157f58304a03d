"""What Dynamo did to each function that the script compiles, with any backend.  Stdlib only.

Invariant: one record per graph break, recompilation and constant, however often Dynamo meets it again.

| Dynamo | record |
|---|---|
| breaks the graph and goes on behind the expression | `Break`, effect "graph split" |
| cannot resume behind it: what follows runs in eager | `Break`, effect "rest in eager" |
| gives the function up | `Break`, effect "function in eager" |
| raises, as the script asked for `fullgraph=True` | `Break`, effect "error" |
| compiles a function for the first time | `Compilation` without a cause |
| recompiles it, as a guard failed | `Compilation` with its `Cause` |
| stops compiling it after too many of these | `DynamoFunction.limit_hit` |
| runs a call without a graph, for another function's sake | `NotCompiled` |
| builds a size or number into a graph | `Specialisation` |
| looks at a function and leaves it to Python | `Skipped` |
| checks values before each call | `DynamoGuard` |
| would do for other arguments | `Forecast` |
| spends time | `CompileSeconds`: by phase, and Dynamo's own by the user's line |
"""

from dataclasses import dataclass, field
from typing import Literal

from aotlens.model.eager import NotCompiled
from aotlens.model.recompilations import Cause, CauseKind, Forecast
from aotlens.model.source import Fix, Related, Span

__all__ = [
    "Break",
    "BreakEffect",
    "CacheLookup",
    "CacheUse",
    "Cause",
    "CauseKind",
    "Compilation",
    "CompileSeconds",
    "Dynamo",
    "DynamoFunction",
    "DynamoGuard",
    "FixOutcome",
    "LineSeconds",
    "PreventedFusion",
    "ProcessKind",
    "Seconds",
    "Skipped",
    "Specialisation",
    "SpecialisationKind",
    "StartedProcesses",
    "TriedFix",
]

BreakEffect = Literal["graph split", "rest in eager", "function in eager", "error"]

SpecialisationKind = Literal[
    "0/1",  # a size of 0 or 1 is never a symbol
    "compared",  # the user's code, or an operator, asked whether a symbolic size has this value
    "required",  # the same, by a layer or function of a library
    "number",  # a Python number among the arguments
]


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall time of one compilation."""

    dynamo: float
    """Tracing the bytecode and building guards."""
    backend: float
    """The backend's time for the graph, its backward included."""
    total: float


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation of a function, or of the rest after a graph break in it."""

    id: str
    """Dynamo's number, `2/1`: the code, and how often it was compiled before."""
    part: str
    """Empty for the function from its start; `after line 14` for the rest after a graph break."""
    targets: tuple[str, ...]
    """Targets of the report that this compilation made; empty with another backend."""
    seconds: Seconds
    cause: Cause | None
    """None for the first compilation of its code."""
    has_ended: bool = True
    """False for a compilation of a log that stops within it; its time is unknown."""


@dataclass(frozen=True, slots=True)
class PreventedFusion:
    """Two operators, before and after a graph break, that one kernel could compute without it."""

    producer: str
    """The operator that writes a tensor before the break, as torch names it: `relu`."""
    consumer: str
    """The operator that reads this tensor after it."""
    producer_span: Span | None
    """The statement of the user's that calls it; None where no line of theirs is known."""
    consumer_span: Span | None


@dataclass(frozen=True, slots=True)
class Break:
    """An expression at which Dynamo stops tracing."""

    span: Span
    text: str
    """The user's expression."""
    code: str
    """torch's number for the kind of break, `GB0170`; empty where it has none."""
    reason: str
    """One sentence: what Dynamo found, and why it cannot trace it."""
    hint: str
    """torch's own first hint; may be empty."""
    effect: BreakEffect
    related: tuple[Related, ...] = ()
    """The line of a library below the user's call, where Dynamo stopped."""
    splits: tuple[str, ...] = ()
    """The functions whose graphs end here, the innermost first."""
    compilations: tuple[str, ...] = ()
    """The compilations that stopped here."""
    graphs: int = 0
    """The graphs on both sides of it."""
    tensors: int = 0
    """Tensors that one graph writes to memory and a graph after the break reads again."""
    bytes: int = 0
    fusions: tuple[PreventedFusion, ...] = ()
    """The operators on both sides of it that cannot share a kernel."""
    fails_fullgraph: bool = True
    """Whether `fullgraph=True` raises here; it captures numbers and sizes that depend on data."""
    fixes: tuple[Fix, ...] = ()
    """Edits that were tried and passed."""


@dataclass(frozen=True, slots=True)
class Specialisation:
    """A size or number that is a constant in the compiled code."""

    name: str
    """The value as the user writes it: `x.shape[0]`, `k`."""
    value: str
    symbol: str
    """Its earlier symbol, `s12`; empty where it never was one."""
    kind: SpecialisationKind
    reason: str
    """One sentence, with the values that may still vary."""
    span: Span | None
    """The expression that made it a constant, or the first that reads it."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A function that Dynamo examined and left to Python."""

    name: str
    span: Span
    reason: str
    hint: str
    is_loss: bool
    """Whether tensor operations run in eager because of it; many functions have none."""


@dataclass(frozen=True, slots=True)
class DynamoGuard:
    """Checks of one value that run before each call."""

    expression: str
    """Over the user's names."""
    name: str
    span: Span | None
    """The first use of the value; None where no line of the user's has one."""
    count: int
    nanoseconds: float | None
    """Their share of the measured time of all guards of the compilation, by number; None unless measured."""


@dataclass(frozen=True, slots=True)
class DynamoFunction:
    """A function of the user's that Dynamo compiled, with the rest after its graph breaks."""

    name: str
    qualname: str
    span: Span
    """Its first line."""
    calls: int | None
    """How often its first graph ran; None unless guards were timed, which counts the calls."""
    compilations: tuple[Compilation, ...] = ()
    breaks: tuple[Break, ...] = ()
    """In the order of the source."""
    specialisations: tuple[Specialisation, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    """Functions that are called within it or by themselves, under its file."""
    guards: tuple[DynamoGuard, ...] = ()
    """Of the last compilation of each part, the most expensive first."""
    guard_nanoseconds: float | None = None
    """One evaluation of all guards of the last compilations, measured; None unless requested."""
    limit_hit: bool = False
    """Whether it was recompiled so often that new calls run in eager."""
    eager_calls: int | None = None
    """The calls that ran in eager because of that; None where they were not counted."""
    compiled_at: tuple[Span, ...] = ()
    """Where the script passes it to `torch.compile`, or calls the module's `compile()`."""

    @property
    def recompilations(self) -> tuple[Compilation, ...]:
        """The compilations that a failed guard caused."""
        return tuple(entry for entry in self.compilations if entry.cause is not None)


@dataclass(frozen=True, slots=True)
class LineSeconds:
    """Time that Dynamo spent on one line of the user's, with the library code that it calls.

    In a report from a log it is a part of all compile time: generated code counts for the lines of its
    kernels, the rest for the line of the function.
    """

    span: Span
    seconds: float


@dataclass(frozen=True, slots=True)
class CacheUse:
    """One of torch's caches of compiled code."""

    name: str
    hits: int
    misses: int
    bypasses: int
    """Graphs that cannot be cached."""


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """One question to a cache of torch's."""

    cache: str
    """`AOTAutograd` or `Inductor`."""
    outcome: Literal["hit", "miss", "bypass"]
    """`bypass` where the graph cannot be cached."""
    compilation: str
    """Dynamo's number of the compilation that looked it up, `0/1`; empty for a backward."""
    cause: str
    """Why it was a miss: the parts of the key that differ, or torch's reason; empty for a hit."""


@dataclass(frozen=True, slots=True)
class CompileSeconds:
    """Wall time of compiling, first runs of the graphs included."""

    total: float
    attributed: float
    """The part of it that the phases account for."""
    by_phase: dict[str, float] = field(default_factory=dict)
    by_line: tuple[LineSeconds, ...] = ()
    """Dynamo's own time, or in a report from a log all compile time; the costliest line first."""
    caches: tuple[CacheUse, ...] = ()
    lookups: tuple[CacheLookup, ...] = ()
    """In the order in which they were made."""


@dataclass(frozen=True, slots=True)
class FixOutcome:
    """The results of a run of an edited script, beside those of the unedited one."""

    breaks_before: int
    breaks_after: int
    compilations_before: int
    compilations_after: int
    seconds_saved: float | None
    """Of compiling; None where a cache of torch's answered, so that the runs cannot be compared."""
    compared: str
    """The values equal to a run in eager: `5 calls (5 tensors), 1 line of output`."""
    together: int = 1
    """The fixes in the edited script: 1 for a fix alone; more where it edits what earlier ones wrote."""


@dataclass(frozen=True, slots=True)
class TriedFix:
    """A tried edit of the user's source, offered or not."""

    kind: str
    """`print`, `item`, `tensor branch`, `counter`, …"""
    function: str
    """The function of the graph break or recompilation that it removes."""
    target: str
    """The expression at which the graph breaks, or the name of the value that changes."""
    fix: Fix
    """The edit; of the source on disk, where it passed."""
    outcome: FixOutcome | None
    """None where the edit was rejected."""
    rejected: str = ""
    """Why it is not offered: a result that differs, a script that fails, a break or recompilation that
    remains."""
    conflict: str = ""
    """Why `--fix` does not write it although it passed: the result of the run with the others."""

    @property
    def passed(self) -> bool:
        """Return True if the edited script equals eager and compiled less."""
        return self.outcome is not None

    @property
    def is_written(self) -> bool:
        """Return True if it is among the edits that passed together."""
        return self.passed and not self.conflict


ProcessKind = Literal[
    "data loader",  # a worker of a `DataLoader`
    "multiprocessing",
    "command",  # Python, or a launcher, as a program of its own
    "fork",
]


@dataclass(frozen=True, slots=True)
class StartedProcesses:
    """Processes that the script started; their compilations are not observed."""

    kind: ProcessKind
    name: str
    """The function or command that they run; empty for workers of a data loader, and for `os.fork`."""
    span: Span | None
    """The user's line that started them."""
    count: int


@dataclass(frozen=True, slots=True)
class Dynamo:
    """Everything that Dynamo did while the script ran."""

    functions: tuple[DynamoFunction, ...] = ()
    """In the order in which Dynamo compiled them."""
    compile_seconds: CompileSeconds = field(default_factory=lambda: CompileSeconds(0.0, 0.0))
    fixes: tuple[TriedFix, ...] = ()
    """Tried edits, those that passed first; empty unless requested."""
    fixes_together: FixOutcome | None = None
    """Of the run with all written edits; None unless one passed."""
    fixable: int = 0
    """The graph breaks and recompiling values for which there is an edit to try."""
    forecasts: tuple[Forecast, ...] = ()
    """Results of calls with other arguments; empty unless requested."""
    processes: tuple[StartedProcesses, ...] = ()
    """Other processes of the script, which are not observed."""
    calls_in_eager: tuple[NotCompiled, ...] = ()
    """Calls in which no graph ran, though Dynamo may report nothing of its own; not those of a function with
    `limit_hit`, which counts them.  Only `aotlens why` lists them here; `not_compiled` has them too."""

    @property
    def breaks(self) -> tuple[Break, ...]:
        """Every graph break, each once."""
        return tuple(entry for function in self.functions for entry in function.breaks)

    @property
    def recompilations(self) -> tuple[Compilation, ...]:
        """Every compilation that a failed guard caused."""
        return tuple(entry for function in self.functions for entry in function.recompilations)
