"""Collect what a session observes: compiled targets, their calls, and targets that could not be compiled.

Invariant: a target is collected once per input signature, in the order of capture.
"""

import importlib
import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import torch

from aotlens.capture.provenance.frames import (
    importing_library,
    is_torch_file,
    is_user_file,
)
from aotlens.model.eager import CODES, NotCompiled
from aotlens.model.failure import Failure
from aotlens.observe import NotCompiled as NotCompiledGraph
from aotlens.observe import Observer, current_observers, observed_in_new_thread, observing
from aotlens.session.dynamo.log import first_line
from aotlens.session.errors.failures import failure_of
from aotlens.torch_api.dynamo.calls import passed_callable, state_against_dynamo
from aotlens.torch_api.dynamo.state import skip_frame_in_dynamo
from aotlens.torch_api.patches.compilers import COUNT_CALLS
from aotlens.torch_api.patches.scopes import patched

if TYPE_CHECKING:
    from aotlens.compiled import Compiled

__all__ = ["REPEATS", "Collector", "StopScript", "counting_calls"]

REPEATS = 3
"""A trace stops the script after this many calls of one target without a new capture."""


class StopScript(BaseException):
    """Ends a script whose targets only repeat; the user's `except Exception` does not catch it."""


@dataclass(eq=False, slots=True)
class CompiledCallable:
    """A function or module that the script passes to `torch.compile`, or a copy of a compiled module."""

    function: Any
    """The module itself where the script passes its `forward` or calls its `compile()`."""
    calls: int = 0
    """Calls that other compiled code makes are not counted."""
    eager_calls: int = 0
    """Calls in which no graph ran."""
    failed_calls: int = 0
    """Calls that raised an error before a graph ran."""
    states: dict[str, int] = field(default_factory=dict)
    """What kept Dynamo from compiling, by number of calls in eager."""
    is_of_import: bool = False
    """Whether a library passed it to `torch.compile` while the library was imported."""

    @property
    def entries(self) -> list[tuple[tuple[str, int], str]]:
        """Return the location and name of the function, or of the module's `forward`."""
        code = getattr(self._called, "__code__", None)
        return [] if code is None else [((code.co_filename, code.co_firstlineno), self.name)]

    @property
    def _called(self) -> Any:
        """Return the Python function that a call runs."""
        called = _without_partials(self.function)
        if isinstance(called, torch.nn.Module):
            called = getattr(type(called), "forward", None)  # that of a `ScriptModule` cannot be read
        elif not hasattr(called, "__code__") and not isinstance(called, BuiltinFunctionType):
            called = type(called).__call__ if callable(called) else None
        called = inspect.unwrap(called) if callable(called) else called
        return getattr(called, "__func__", called)

    @property
    def name(self) -> str:
        """Return the name of the function, or of the module's class."""
        function = _without_partials(self.function)
        return str(getattr(function, "__name__", type(function).__name__))

    @property
    def is_wrapped(self) -> bool:
        """Return True if Dynamo traces a wrapper that all such callables share: around code of torch's own,
        builtin functions, and objects that are called.
        """
        if not isinstance(self.function, torch.nn.Module) and not hasattr(self.function, "__code__"):
            return True
        return any(is_torch_file(file) for (file, _), _ in self.entries)

    @property
    def ran_compiled(self) -> bool:
        """Return True if a graph ran in one of the calls."""
        return self.calls > self.eager_calls + self.failed_calls


def _without_partials(function: Any) -> Any:
    """Return the function that a `functools.partial` calls, which has the user's name; others unchanged."""
    while isinstance(function, partial):
        function = function.func
    return function


class Collector:
    """Collects while the script runs; mutable."""

    def __init__(self, script: str = "", repeats: int | None = None, limit_s: float = 0.0) -> None:
        """Stop the script after `repeats` calls of a target and `limit_s` seconds without a new one.

        With `repeats` None the script runs to its end.
        """
        self.script = script
        self.compiled: list[Compiled] = []
        self.callables: list[CompiledCallable] = []
        self._callables_by_id: dict[int, CompiledCallable] = {}
        self.eager_calls: list[NotCompiled] = []
        """Calls of functions that the script passed to `aotlens.compile` and that run in eager."""
        self.other_backends: list[NotCompiled] = []
        self.stopped = False
        """Whether the script was stopped because its targets only repeated."""
        self._repeats = repeats
        self._limit_s = limit_s
        self._last_new_capture = time.monotonic()
        self._calls: Counter[int] = Counter()
        self._eager: list[NotCompiledGraph] = []
        self._failures: list[Failure] = []
        self.has_graphs = False
        """Whether Dynamo captured a graph of any code."""
        self._graph_calls = 0
        self._observers: tuple[Observer, ...] = ()

    @contextmanager
    def listening(
        self,
        on_stage: Callable[[str], None] = lambda name: None,
        on_target: Callable[[str], None] = lambda name: None,
    ) -> Iterator[None]:
        """Collect what the engine compiles within the block."""
        with observing(self._add, on_stage, self._add_eager, on_target):
            self._observers = current_observers()
            yield

    def listening_in_thread(self) -> AbstractContextManager[None]:
        """Collect also what a thread of the script compiles within the block."""
        return observed_in_new_thread(self._observers)

    def _failed_graphs(self) -> Iterator["NotCompiledGraph"]:
        """Return the graphs that the engine cannot compile and that run in eager."""
        return (graph for graph in self._eager if not graph.fails_in_eager)

    def _add_eager(self, graph: "NotCompiledGraph") -> None:
        self._eager.append(graph)
        self.has_graphs = True
        self._restart_counting()

    @property
    def eager_graphs(self) -> tuple[NotCompiled, ...]:
        """Return the graphs that run in eager; a graph that fails in eager too is a mistake of the user's."""
        return tuple(graph.record() for graph in self._failed_graphs())

    @property
    def failures(self) -> list[Failure]:
        """Return the targets that could not be compiled, as failures of a trace."""
        graphs = self._failed_graphs()
        return [*self._failures, *(failure_of(graph.error, self.script) for graph in graphs)]

    def note_graph(self) -> None:
        """Note that Dynamo captured a graph."""
        self.has_graphs = True

    def count_graph(self) -> None:
        """Count one run of a graph."""
        self.has_graphs = True
        self._graph_calls += 1

    def add_callable(self, function: Any) -> CompiledCallable:
        """Return the entry of a callable that is passed to `torch.compile`; the same one for every call."""
        function = passed_callable(function)
        known = self._callables_by_id.get(id(function))
        if known is None:
            known = CompiledCallable(
                function, is_of_import=importing_library()
            )  # the entry keeps the function alive, and with it the id
            self._callables_by_id[id(function)] = known
            self.callables.append(known)
        return known

    def note_other_backend(self, function: Any, backend: object) -> None:
        """Note that the script chose another backend; torch's own uses are ignored."""
        entries = CompiledCallable(passed_callable(function)).entries
        if not entries or not is_user_file(entries[0][0][0]):
            return
        (file, line), name = entries[0]
        chosen = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
        reason = f"the script chose the backend `{chosen}`"
        code, span = CODES["other backend"], first_line(file, line)
        record = NotCompiled(
            name=name, qualname=name, cause="other backend", reason=reason, code=code, span=span
        )
        if record not in self.other_backends:  # a function may be passed at every call
            self.other_backends.append(record)

    def _add(self, compiled: "Compiled") -> None:
        self.compiled.append(compiled)
        self._restart_counting()

    @contextmanager
    def discarding(self) -> Iterator[None]:
        """Discard what the engine compiles within the block."""
        count = len(self.compiled)
        try:
            yield
        finally:
            del self.compiled[count:]

    def noting_calls(self, function: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what was compiled so that the calls are counted, and those in which no graph ran.

        A function that the script did not pass is a method of a class that it passed, and is not counted.
        """
        function = passed_callable(function)
        if id(function) not in self._callables_by_id and not isinstance(function, torch.nn.Module):
            return compiled

        @wraps(compiled)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # Dynamo inlines it
                return compiled(*args, **kwargs)
            # a copy of a compiled module was never passed to `torch.compile`, and has no entry yet
            entry = self._callables_by_id.get(id(function)) or self.add_callable(function)
            before = self._graph_calls
            entry.calls += 1
            try:
                outputs = compiled(*args, **kwargs)
            except BaseException:
                entry.failed_calls += self._graph_calls == before
                raise
            if self._graph_calls == before:
                entry.eager_calls += 1
                if state := state_against_dynamo():
                    entry.states[state] = entry.states.get(state, 0) + 1
            return outputs

        return skip_frame_in_dynamo(recorded)

    def add_failure(self, failure: Failure) -> None:
        """Add the engine's error for a target that it could not compile; the script continues in eager."""
        self._failures.append(failure)
        self._restart_counting()

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a graph so that its calls are counted; a call above the limit raises StopScript."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count_graph()
            if self._repeats is not None:
                self.count_call(id(counted))
            return function(*args, **kwargs)

        if getattr(function, "_boxed_call", False):  # Dynamo then passes one list, which the callee clears
            counted._boxed_call = True  # type: ignore[attr-defined]
        return counted

    def stop_counting(self) -> None:
        """Stop counting, because the script has ended."""
        self._repeats = None

    def count_call(self, key: int) -> None:
        """Count one call; the first one after a capture is the call that caused the capture."""
        self._calls[key] += 1
        if self._repeats is None or self._calls[key] <= self._repeats:
            return
        if time.monotonic() - self._last_new_capture >= self._limit_s:
            self.stopped = True
            raise StopScript

    def _restart_counting(self) -> None:
        self._calls.clear()
        self._last_new_capture = time.monotonic()


@contextmanager
def counting_calls(collector: Collector) -> Iterator[None]:
    """Within the block, count the calls of all that the script passes to `torch.compile`, for any backend."""

    def wrapped(backend: object, function: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
        if getattr(function, "__name__", "") != "__call__":  # a class is passed, and not its instances
            collector.add_callable(function)
        return collector.noting_calls(function, compiled)

    importlib.import_module("torch._dynamo.eval_frame")
    with patched(COUNT_CALLS, wrapped):
        yield
