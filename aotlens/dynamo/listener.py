"""Records everything that Dynamo does, by function.

Invariant: nothing here raises into the user's program, changes what Dynamo does, or runs on a cache hit.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

from aotlens.capture.provenance.frames import calling_frames, is_first_party_file, is_user_file, user_qualname
from aotlens.dynamo.breaks import Breaks, is_limit
from aotlens.dynamo.cache_lookups import CacheLog
from aotlens.dynamo.compile_sites import CompileSites, code_of
from aotlens.dynamo.compile_time import DYNAMO, FIRST_RUN, Clock
from aotlens.dynamo.facts import CompilationFacts, CompilationIds, FunctionFacts, MeasuredGuards, WrappedSkip
from aotlens.dynamo.graph_edges import graph_edges
from aotlens.dynamo.graph_transfers import GraphTransfers
from aotlens.dynamo.guard_names import as_guard, without_scope
from aotlens.dynamo.recompilations import closest_entry, failed_guard, of_wrapped_module
from aotlens.dynamo.skips import LAYER_OF_TORCH
from aotlens.dynamo.spans import statement_span, user_span
from aotlens.model.dynamo import Cause
from aotlens.model.report import AFTER
from aotlens.observe import observing
from aotlens.torch_api.dynamo.calls import EagerCalls, passed_callable
from aotlens.torch_api.dynamo.events import (
    CacheEvent,
    DynamoConstant,
    DynamoGraph,
    DynamoGuards,
    DynamoLoss,
    DynamoRecompile,
    Frames,
)
from aotlens.torch_api.patches.compilers import LISTEN
from aotlens.torch_api.patches.scopes import patched

__all__ = ["FunctionKey", "Listener"]

_FRAME = "frame"
"""The clock's event for a function that Dynamo processes."""
_STAGE = "aotlens"
"""The clock's event for a stage of our own backend."""
WARM_RUNS = 200
"""The number of evaluations over which guards are timed."""

FunctionKey = tuple[str, str]
"""File and qualified name."""


@dataclass(slots=True)
class _Frame:
    """A function that Dynamo is processing."""

    code: CodeType
    owner: FunctionFacts
    part: str
    wraps: Any = None
    """The module or function that it calls, if it is a wrapper of torch's."""
    depth: int = 0
    """The inlining depth of that call; 0 until Dynamo traces it."""
    compile_id: str = ""
    """Empty until it is compiled."""


class _Tracing(threading.local):
    """What Dynamo traces in one thread; mutable."""

    def __init__(self) -> None:
        self.stack: list[_Frame] = []
        self.line: tuple[str, int] | None = None
        """The user's line that is traced."""
        self.began = 0.0
        """Dynamo's time at the start of that line."""
        self.depth = -1
        """The inlining depth of the last line that was not skipped; -1 before the first."""


class Listener:
    """Mutable: filled while the script runs."""

    def __init__(self, time_guards: bool = False) -> None:
        self.functions: dict[FunctionKey, FunctionFacts] = {}
        self.breaks = Breaks()
        self.losses: list[DynamoLoss] = []
        self.clock = Clock()
        self.crossings = GraphTransfers()
        self.caches = CacheLog()
        self.line_seconds: dict[tuple[str, int], float] = {}
        self.sites = CompileSites()
        self.inlined: set[tuple[str, int]] = set()
        """File and first line of every function that Dynamo traced as a callee."""
        self.times_guards = time_guards
        """Whether the guards of each compilation are evaluated once more, to measure them."""
        self.counts_calls = time_guards
        """Whether every run of a graph is noted: guards cost their time at each call, so both are shown."""
        self.on_run: Callable[[], None] | None = None
        """Called at each run of a graph; None where the session does not count the calls of targets."""
        self.graphs: dict[str, tuple[str, str, str]] = {}
        """File, function and part of each compilation whose graph ran."""
        self.wrapped_skips: dict[int, WrappedSkip] = {}
        """By id, the modules and functions of torch's own whose wrapper Dynamo skipped."""
        self._tracing = _Tracing()
        self._sized: dict[str, Frames] = {}
        """Where each condition on sizes was created."""
        self._names: dict[tuple[str, str], tuple[str, str]] = {}
        """By file and `co_qualname`, what `_qualname` returns, for which it compiles the file."""
        self._ids = CompilationIds()
        self._eager_calls: EagerCalls | None = None
        self._limited: dict[CodeType, FunctionFacts] = {}
        """The functions that have reached the recompile limit."""

    @contextmanager
    def listening(self) -> Iterator["Listener"]:
        """Record what Dynamo does within the block."""
        with (
            patched(LISTEN, self),
            observing(on_stage=self._on_stage, on_busy=self._on_busy),
            closing(EagerCalls(self._runs_in_eager)) as calls,
        ):
            self._eager_calls = calls
            yield self

    def _on_busy(self, is_busy: bool) -> None:
        """A stage of our own backend begins or ends."""
        if is_busy:
            self.clock.begin(_STAGE)
        else:
            self.clock.end(_STAGE)

    def _on_stage(self, name: str) -> None:
        self.clock.rename(_STAGE, f"aotlens {name}")

    # Functions that Dynamo processes.

    def frame_begins(self, code: CodeType, wraps: Any) -> None:
        self.clock.begin(_FRAME, "", DYNAMO)
        self._tracing.stack.append(_Frame(code, *self._owner(code, wraps), wraps))
        self._tracing.depth = -1

    def frame_ends(self, code: CodeType) -> None:
        self._end_line()
        stack = self._tracing.stack
        while stack and stack.pop().code is not code:
            continue
        self.clock.end(_FRAME)

    def _owner(self, code: CodeType, wraps: Any = None) -> tuple[FunctionFacts, str]:
        """Return the user function to which a code object belongs, and the part of it that the code is."""
        known = next((frame for frame in reversed(self._tracing.stack) if frame.code is code), None)
        if known is not None:
            return known.owner, known.part
        if is_user_file(code.co_filename):
            qualname, part = self._qualname(code)
            return self.function(code.co_filename, qualname, code.co_firstlineno), part
        caller = next(iter(calling_frames().frames), None)
        name = code.co_qualname if wraps is None else _name_of(wraps)
        if caller is None:
            return self.function(code.co_filename, name, code.co_firstlineno), ""
        if wraps is not None:
            line = caller[0].co_firstlineno
            return self.function(caller[0].co_filename, name, line), ""
        qualname, _ = self._qualname(caller[0])
        owner = self.function(caller[0].co_filename, qualname, caller[0].co_firstlineno)
        return owner, f"in {name}"

    def _qualname(self, code: CodeType) -> tuple[str, str]:
        """Return the name of the user's function and, for a resume function, `after line 14`; else empty."""
        key = code.co_filename, code.co_qualname
        if key not in self._names:
            name, after, line = user_qualname(code.co_qualname, code.co_filename).partition(AFTER)
            self._names[key] = name, f"after line {line}" if after else ""
        return self._names[key]

    def function(self, file: str, qualname: str, line: int) -> FunctionFacts:
        """Return the facts of a function, which are created at the first call."""
        key = file, qualname
        if key not in self.functions:
            short = qualname.removesuffix(".forward").rsplit(".", 1)[-1]
            self.functions[key] = FunctionFacts(short, qualname, file, line)
        return self.functions[key]

    # What Dynamo reports.

    def compiles(self, function: Any, frames: Frames) -> None:
        self.sites.add(function, frames)

    def skips(self, code: CodeType, reason: str, wrapped: tuple[Any, Frames] | None) -> None:
        """Note what Dynamo does not trace: layers passed to `torch.compile`, and functions of the user's."""
        if wrapped is not None:
            function, frames = wrapped
            skip = WrappedSkip(_name_of(function), reason, user_span(frames))
            self.wrapped_skips.setdefault(id(passed_callable(function)), skip)
        for name, span in self.sites.skipped_by(code):
            owner = self.function(span.file, name, span.line)
            owner.skipped.setdefault((name, LAYER_OF_TORCH, span))
        if not is_first_party_file(code.co_filename):
            return
        qualname, _ = self._qualname(code)
        owner = self.function(code.co_filename, qualname, code.co_firstlineno)
        span = statement_span(code.co_filename, code.co_firstlineno)
        owner.skipped.setdefault((code.co_qualname, reason.partition("\n")[0], span))

    def skipped_code(self) -> Iterator[tuple[str, int, str]]:
        """Yield file, first line and reason of each function of the user's that Dynamo skipped."""
        for facts in self.functions.values():
            for _, reason, span in facts.skipped:
                yield span.file, span.line, reason

    def loses(self, loss: DynamoLoss) -> None:
        frame = next((frame for frame in reversed(self._tracing.stack) if frame.code is loss.root), None)
        compile_id = self._ids.current(loss.compile_id) or (frame.compile_id if frame is not None else "")
        loss = loss._replace(compile_id=compile_id)
        self.losses.append(loss)
        if is_limit(loss):
            self._reaches_limit(loss.root)
        else:
            wraps = None if frame is None else frame.wraps
            self.breaks.add(loss, *(() if wraps is None else (_name_of(wraps), id(passed_callable(wraps)))))

    def _reaches_limit(self, code: CodeType) -> None:
        owner, _ = self._owner(code)
        owner.limit_hit = True
        owner.eager_calls += 1
        self._limited[code] = owner
        if self._eager_calls is not None:
            self._eager_calls.watch(code)

    @property
    def eager_calls_are_exact(self) -> bool:
        """Whether every call in eager because of the limit was counted; a profiler may hide some."""
        return self._eager_calls is None or self._eager_calls.is_exact

    def limited(self, code: CodeType) -> str:
        """Return the name of the function that reached the recompile limit; of a wrapper, what it called."""
        return self._limited[code].name

    def eager_calls(self, code: CodeType) -> int | None:
        """Return how many calls of a function ran in eager because of the limit; None if that is unknown."""
        owner = self._limited.get(code)
        return owner.eager_calls if owner is not None and self.eager_calls_are_exact else None

    def _runs_in_eager(self, code: CodeType) -> None:
        self._limited[code].eager_calls += 1

    def recompiles(self, recompile: DynamoRecompile) -> None:
        """Note which guard failed, and at which lines, so that a function is compiled once more."""
        owner, part = self._owner(recompile.code)
        facts = self._compilation(owner, part, self._ids.current(recompile.compile_id))
        miss = closest_entry(recompile)
        if miss is None:
            facts.cause = Cause("", "other", "", "", "", None, None, "")
            return
        failed = failed_guard(miss, recompile.scope, self._broken_before(recompile.code))
        if self._tracing.stack and self._tracing.stack[-1].wraps is not None:
            failed = of_wrapped_module(failed)
        frames = miss.frames or self._guard_frames(owner, part, failed.source, miss.reason)
        facts.cause = Cause(
            failed.guard,
            failed.kind,
            failed.name,
            failed.old,
            failed.new,
            user_span(frames),
            user_span(recompile.above),
            self._ids.current(miss.entry),
        )

    def _broken_before(self, code: CodeType) -> str:
        """Return the expression of the graph break before a resume function."""
        _, part = self._qualname(code)
        if not part:
            return ""
        return self.breaks.text_at(code.co_filename, int(part.rpartition(" ")[2]))

    def _guard_frames(self, owner: FunctionFacts, part: str, source: str, reason: str) -> Frames:
        """Return where a guard on a tensor or on sizes was created, if the guard does not say so itself."""
        condition = reason.partition("  # ")[0].strip()
        for text, frames in self._sized.items():
            if as_guard(text) == condition:
                return frames
        guards = owner.guards.get(part)
        made = [(without_scope(name), frames) for name, _, frames in guards.made if frames] if guards else []
        near = [entry for entry in made if without_scope(source).startswith(entry[0])]
        return max(near, key=lambda entry: len(entry[0]), default=("", ()))[1]

    def makes_constant(self, constant: DynamoConstant) -> None:
        self._owner(constant.root)[0].constants.append(constant)

    def guards_size(self, expression: str, frames: Frames) -> None:
        self._sized.setdefault(expression, frames)

    def makes_guards(self, guards: DynamoGuards) -> None:
        owner, part = self._owner(guards.code)
        nanoseconds = _timed(guards.check) if self.times_guards else None
        owner.guards[part] = MeasuredGuards(guards.made, nanoseconds)
        if part:
            return
        arguments = guards.code.co_varnames[: guards.code.co_argcount + guards.code.co_kwonlyargcount]
        for source, code, frames in guards.made:
            if "==" not in code or (name := without_scope(source)) not in arguments:
                continue
            value = guards.scope["L"].get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                owner.numbers.setdefault(name, (value, user_span(frames)))

    # Time.

    def starts_line(self, code: CodeType, depth: int, lines: Iterator[tuple[str, int]]) -> None:
        tracing = self._tracing
        if depth and not self._is_wrapped(code, depth):
            self.inlined.add((code.co_filename, code.co_firstlineno))
        if depth > tracing.depth and not is_user_file(code.co_filename):
            return  # a library's function, called from the same user line: most lines are of this kind
        tracing.began, tracing.depth = self._end_line(), depth
        tracing.line = next((line for line in lines if is_user_file(line[0])), None)

    def _is_wrapped(self, code: CodeType, depth: int) -> bool:
        """Return True for the code that a wrapper of torch's calls; deeper, it is a part of that code."""
        frame = next(iter(reversed(self._tracing.stack)), None)
        if frame is None or frame.wraps is None or code is not code_of(passed_callable(frame.wraps)):
            return False
        frame.depth = min(depth, frame.depth or depth)
        return depth == frame.depth

    def _end_line(self) -> float:
        """Add to the current line the time since it began; return the time that Dynamo has spent so far."""
        line, seconds = self._tracing.line, self.clock.tracing_seconds()
        if line is not None:
            spent = max(0.0, seconds - self._tracing.began)
            self.line_seconds[line] = self.line_seconds.get(line, 0.0) + spent
            self._tracing.line = None
        return seconds

    def phase_begins(self, name: str, compile_id: str) -> None:
        if name == "backend_compile" or name == "build_guards":
            self._end_line()
        frame = next(iter(reversed(self._tracing.stack)), None)
        if compile_id and frame is not None and not frame.compile_id:
            frame.compile_id = self._ids.new(compile_id)
            self._compilation(frame.owner, frame.part, frame.compile_id)
        self.clock.begin(name, self._ids.current(compile_id))

    def looks_up(self, event: CacheEvent) -> None:
        self.caches.note(event._replace(compile_id=self._ids.current(event.compile_id)))

    def phase_ends(self, name: str) -> None:
        self.clock.end(name)

    def _compilation(self, owner: FunctionFacts, part: str, compile_id: str) -> CompilationFacts:
        if compile_id not in owner.compilations:
            owner.compilations[compile_id] = CompilationFacts(compile_id, part)
        return owner.compilations[compile_id]

    def captures(self, graph: DynamoGraph, nodes: Sequence[Any]) -> None:
        self.crossings.edges[self._ids.current(graph.compile_id)] = graph_edges(nodes)

    def runs(self, graph: DynamoGraph, inputs: Sequence[Any]) -> Callable[[Any], None]:
        """Note that a compiled graph starts to run; the returned callback takes its outputs."""
        owner, part = self._owner(graph.code)
        compile_id = self._ids.current(graph.compile_id)
        owner.calls += not part
        self.graphs[compile_id] = owner.file, owner.qualname, part
        received = self.crossings.reads(compile_id, inputs)
        self.clock.begin(FIRST_RUN, compile_id, FIRST_RUN)

        def done(outputs: Any) -> None:
            self.clock.end(FIRST_RUN)
            if graph.ends_at_break:
                self.crossings.writes(compile_id, outputs, received)

        return done


def _name_of(function: Any) -> str:
    function = getattr(function, "__self__", function)
    return str(getattr(function, "__qualname__", type(function).__name__))


def _timed(check: Callable[[], bool]) -> float:
    """Return the nanoseconds of one warm evaluation."""
    start = time.perf_counter_ns()
    for _ in range(WARM_RUNS):
        check()
    return (time.perf_counter_ns() - start) / WARM_RUNS
