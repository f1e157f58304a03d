"""Records of what Dynamo does, and the protocol of a listener that gets them."""

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, TracebackType
from typing import Any, Literal, NamedTuple, Protocol

__all__ = [
    "LOSSES",
    "CacheEvent",
    "DynamoConstant",
    "DynamoGraph",
    "DynamoGuards",
    "DynamoListener",
    "DynamoLoss",
    "DynamoRecompile",
    "Frames",
    "GuardMiss",
    "log_exceptions",
]

Frames = tuple[traceback.FrameSummary, ...]
"""Source locations, outermost first; columns where they are known."""


class DynamoLoss(NamedTuple):
    """Code that Dynamo leaves in eager."""

    root: CodeType
    """The function that Dynamo was compiling."""
    frames: Frames
    """Down to where Dynamo stopped, from the frames that called the compiled function on."""
    effect: str | None
    """Dynamo's sentence on what becomes of the function; None where it was given up outside of tracing."""
    message: str
    compile_id: str = ""
    """`2/0`; empty where no compilation had begun."""
    is_error: bool = False
    """Whether the user's program gets it as an exception: `fullgraph=True`."""


class GuardMiss(NamedTuple):
    """The first guard of a cache entry that a call failed."""

    entry: str
    """The compilation that the guard belongs to, `0/0`."""
    reason: str
    """The guard's code as Dynamo prints it, with its source line behind it where that is known."""
    passed: int
    """How many guards of the entry the call passed before."""
    frames: Frames
    """Where the guard was made; empty where Dynamo does not say."""
    closure: Mapping[str, Any]
    """What names in the guard's code stand for, beside the frame's."""


class DynamoRecompile(NamedTuple):
    """A call that none of the compilations of its function serves."""

    code: CodeType
    compile_id: str
    """Of the new compilation."""
    misses: tuple[GuardMiss, ...]
    """The entry that was used last stands first."""
    scope: Mapping[str, Any]
    """`L` and `G` of the new call."""
    above: Frames
    """The frames that called the function."""


class DynamoConstant(NamedTuple):
    """A size or number that Dynamo makes a constant."""

    root: CodeType
    sources: tuple[str, ...]
    """Where the value comes from, as guards write it: `L['x'].size()[0]`."""
    value: int | float
    symbol: str
    """The symbol that it was before, `s12`; empty where it never was one."""
    reason: str
    frames: Frames


class DynamoGuards(NamedTuple):
    """The guards of one compilation."""

    code: CodeType
    compile_id: str
    made: tuple[tuple[str, str, Frames], ...]
    """Of each guard its source (`L['x']`), its code, and where it was made."""
    scope: Mapping[str, Any]
    check: Callable[[], bool]
    """Evaluate all of them on the values of the call that was compiled."""


class DynamoGraph(NamedTuple):
    """A graph that Dynamo had compiled."""

    code: CodeType
    compile_id: str
    ends_at_break: bool


class CacheEvent(NamedTuple):
    """A lookup in one of torch's caches of compiled code."""

    cache: str
    outcome: Literal["hit", "miss", "bypass"]
    components: tuple[str, ...]
    """The parts of the key, each `[digest] name: text`; empty where torch does not say."""
    reason: str
    """Torch's own reason for a miss or bypass; empty where it has none."""
    compile_id: str


class DynamoListener(Protocol):
    """The handler of the scope `LISTEN`; each method is called from within the compilation."""

    counts_calls: bool
    """Whether every run of a graph is reported, not the first alone."""
    on_run: Callable[[], None] | None
    """Called at every run of a graph, whatever else is reported; None if nobody counts them."""

    def compiles(self, function: Any, frames: Frames) -> None:
        """The script passes a function to `torch.compile`, in the innermost of these frames of its own."""

    def frame_begins(self, code: CodeType, wraps: Any) -> None:
        """Dynamo looks at a function; `wraps` is what a wrapper of torch's calls."""

    def frame_ends(self, code: CodeType) -> None: ...
    def skips(self, code: CodeType, reason: str, wrapped: "tuple[Any, Frames] | None") -> None:
        """Dynamo leaves a function to Python; `wrapped` is what a wrapper calls, and from where."""

    def loses(self, loss: DynamoLoss) -> None: ...
    def recompiles(self, recompile: DynamoRecompile) -> None: ...
    def makes_constant(self, constant: DynamoConstant) -> None: ...
    def guards_size(self, expression: str, frames: Frames) -> None: ...
    def makes_guards(self, guards: DynamoGuards) -> None: ...
    def starts_line(self, code: CodeType, depth: int, lines: Iterator[tuple[str, int]]) -> None:
        """Dynamo begins to trace a line of a function that it inlined at this depth.

        `lines` is this line and the callers', innermost first.
        """

    def phase_begins(self, name: str, compile_id: str) -> None: ...
    def looks_up(self, event: CacheEvent) -> None: ...
    def phase_ends(self, name: str) -> None: ...
    def captures(self, graph: DynamoGraph, nodes: Sequence[Any]) -> None:
        """A graph was compiled; its nodes are Dynamo's and must not be kept."""

    def runs(self, graph: DynamoGraph, inputs: Sequence[Any]) -> Callable[[Any], None]:
        """A graph is about to run for the first time; call the answer with its outputs, None on failure."""


LOSSES = ("Unsupported", "RecompileLimitExceeded")
"""Dynamo's exceptions after which a frame runs in eager."""


class _ExceptionLog:
    """A context manager without state: one for each line that Dynamo traces would cost more than the line."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        logger = logging.getLogger("aotlens.dynamo")
        logger.warning("a fact of Dynamo's could not be recorded", exc_info=error)
        return True


_EXCEPTION_LOG = _ExceptionLog()


def log_exceptions() -> _ExceptionLog:
    """Within the block, log an exception in place of raising it into the user's program."""
    return _EXCEPTION_LOG
