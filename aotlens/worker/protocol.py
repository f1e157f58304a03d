"""The messages of the worker's pipes: versioned JSON lines, one record each.  Stdlib only.

Invariant: every request gets exactly one `Answer`, whatever happens to the child that traces.
"""

from dataclasses import dataclass, field

from aotlens.model.failure import Failure
from aotlens.model.languages import KERNEL_LANGUAGES

PROTOCOL = 1

REPEAT_LIMIT_S = 10.0
"""How long a script continues while its targets only repeat."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a target is traced; the same fields as the options of `aotlens inspect`."""

    backend: str = "eager"
    """Code generation used while tracing: `eager` (none) or `inductor` (kernels are reported)."""
    dynamic: bool = False
    policy: str = "min-cut"
    """As `aotlens.policy.Policy.parse` reads it: `min-cut`, `budget=0.5,save:hidden`."""
    to_end: bool = False
    """Run the script to its end instead of stopping once its targets repeat."""
    repeat_limit_s: float = REPEAT_LIMIT_S
    """How long to continue while targets only repeat: others may follow, such as those of an evaluation."""
    gpu: str | None = None
    """Also report the kernels for this GPU, by name or as `sm_90`."""
    max_autotune: bool = False
    """With a GPU: Triton templates in place of library calls, with all their choices."""
    gpu_texts: tuple[str, ...] = KERNEL_LANGUAGES
    """The languages in which each of these kernels is reported, in addition to Triton."""
    kernel_limit_s: float | None = None
    """Time limit of Triton for one kernel; None for the engine's default."""
    what_if: tuple[str, ...] = ()
    """Changes of the policy whose totals the report includes."""
    only_what_if: bool = False
    """Report of each target only the answers to `what_if`, without its stages, graphs and kernels."""
    fake: bool = False
    """Run the script with fake tensors."""
    examples: bool = False
    """Only targets with examples: the script's definitions run, but not its main part."""
    verify: bool = False
    """Also compare the first call of each target with eager, on copies of its arguments."""
    measure: bool = False
    """Time each kernel where it runs, also on a CPU, with random values."""
    dead_values: bool = False
    """Run the graphs with random values too, to find saved values on which no gradient depends."""
    standalone: bool = False
    """Write module texts that create everything they name, as `aotlens export` needs them."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Trace the targets of one script."""

    path: str
    qualname: str | None = None
    """A function, method or module class of the script; None for all targets."""
    argv: tuple[str, ...] = ()
    options: TraceOptions = field(default_factory=TraceOptions)
    time_limit_s: float = 120.0
    memory_limit_bytes: int | None = None
    """Resident memory of the child and its descendants; None for three quarters of the machine's."""
    fresh: bool = False
    """Retrace even if an answer is cached."""
    list_reads: bool = False
    """List in the answer the data that the script reads, which makes the trace a little slower."""
    hold: bool = False
    """Keep the captured graphs in memory after the answer, where processes can be forked.

    A later request that differs in `what_if` and `only_what_if` alone is then answered without running the
    script again."""
    texts: tuple[tuple[str, str], ...] = ()
    """Edited files: the absolute path and the text that runs in place of the one on disk."""
    id: int = 0
    """Its number on the pipe, which `WorkerClient.submit` sets."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the request of that id; its answer then says `cancelled`."""

    id: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The server's first line, sent once it is warm."""

    pid: int
    torch: str
    python: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a trace; any number of these precede the answer."""

    id: int
    stage: str
    """`queued`, `import`, `run`, a pipeline stage's name, or `report`."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a request."""

    id: int
    report: dict[str, object] | None
    """The report as JSON data (`aotlens.model.codec.decode` reads it); None on failure."""
    failure: Failure | None
    output: str = ""
    """What the user's code wrote to stdout and stderr; the middle of a very long output is cut."""
    elapsed_ms: float = 0.0
    cached: bool = False
    """Whether this is a stored answer whose files have not changed since."""
    files: tuple[str, ...] = ()
    """Absolute paths of the user's sources, and of other files read, if the request asked for them."""
    outside: str = ""
    """Why the same request may have another answer later, apart from files: `it asks the network`."""
    stopped: bool = False
    """Whether the script was stopped early, because its targets only repeated; `to_end` runs it whole."""
