"""Dynamo graphs that the engine cannot compile: they run in eager, exactly as Dynamo captured them.

Invariant: a failed attempt has no effects: RNG states are restored, and the graph that runs is Dynamo's own.
"""

import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import fx

from aotlens.capture.dynamo import subject_of
from aotlens.capture.provenance.dynamo_nodes import frames_of_node, spans_of_node
from aotlens.capture.records import Subject
from aotlens.codegen.records import Generated
from aotlens.eager.checkpointed_graph import eager_graph
from aotlens.errors import DYNAMO_FRAMES, BackendError, UnsupportedError, UserError
from aotlens.ir.program import Program
from aotlens.model.eager import CODES, NotCompiled, NotCompiledCause
from aotlens.model.source import Span
from aotlens.observe import announce_not_compiled, current_observers
from aotlens.rng_state import same_random_state_on_failure
from aotlens.runtime.graph_text import load_program
from aotlens.torch_api.aot import LazyGraphModule
from aotlens.torch_api.dynamo.state import node_at_line

__all__ = [
    "EagerBackward",
    "EagerGraph",
    "eager_call",
    "is_user_error",
    "with_eager_backward",
]

LOG = logging.getLogger(__name__)


class _Fallback:
    """A graph, or a part of one, that runs in eager after the engine failed on it."""

    def __init__(self, subject: Subject, error: Exception) -> None:
        self.subject = subject
        self.error = error
        self.calls = 0
        self.fails_in_eager = False
        """Whether eager raised on the first call: then the error is the user's, and eager's message names
        it."""
        self._observers = current_observers()

    def record(self) -> NotCompiled:
        """Return its record for the report."""
        cause = _cause(self.error)
        span = getattr(self.error, "span", None) or self._span() or self.subject.span
        names = (self.subject.name, self.subject.qualname)
        return NotCompiled(*names, cause, self._reason(), CODES[cause], span, self.calls)

    def announce(self) -> None:
        """Report it to the session, or log a line where there is none."""
        announce_not_compiled(self, self._observers)
        if self._observers:
            return
        from aotlens.model.spans import location  # only programs with such a graph need it

        record = self.record()
        where = f" at {location(record.span)}" if record.span is not None else ""
        LOG.warning("%s: `%s` runs in eager%s: %s", record.code, record.name, where, record.reason)

    def _span(self) -> Span | None:
        return None

    def _reason(self) -> str:
        error = self.error
        if isinstance(error, UnsupportedError):
            return f"{error.case}; {error.hint}" if error.hint else error.case
        text = str(error).strip().partition("\n")[0]
        return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


class EagerGraph(_Fallback):
    """A whole graph, called with flat inputs like a compiled one."""

    def __init__(self, graph: fx.GraphModule, error: Exception, *, is_error: bool = False) -> None:
        """With `is_error` a call raises our error, once eager shows that the graph itself has none."""
        super().__init__(subject_of(graph), error)
        self.graph = eager_graph(graph)
        self._is_error = is_error
        LazyGraphModule.force_recompile(
            self.graph
        )  # otherwise `forward` removes the error's frames and prints it

    def __call__(self, *args: Any) -> Any:
        try:
            result = self.graph.forward(*args)
        except Exception as error:
            self.fails_in_eager = not self.calls
            self._note_frames(error)
            raise
        self.calls += 1
        if self._is_error:
            raise self.error
        return result

    def _span(self) -> Span | None:
        """Return the user's expression of the first node."""
        return next((span for node in self.graph.graph.nodes for span in spans_of_node(node)), None)

    def _note_frames(self, error: Exception) -> None:
        """Attach the user's frames of the failing node to the error."""
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename.startswith("<eval_with_key>")]
        node = node_at_line(self.graph, lines[0]) if lines else None
        if node is not None and not hasattr(error, DYNAMO_FRAMES):
            setattr(error, DYNAMO_FRAMES, frames_of_node(node))


class EagerBackward(_Fallback):
    """The backward of a compiled forward, run operator by operator."""

    def __init__(self, subject: Subject, program: Program, error: Exception) -> None:
        super().__init__(subject, error)
        self._run = load_program(program, boxed=True)

    def __call__(self, inputs: list[Any]) -> Any:
        self.calls += 1
        return self._run(inputs)

    def _reason(self) -> str:
        return f"only its forward is compiled; of the backward: {super()._reason()}"


def with_eager_backward(code: Generated, subject: Subject) -> Generated:
    """Return the code with a backward that runs operator by operator if it cannot be compiled."""
    backward = code.backward
    if backward is None or backward.compile is None:
        return code
    compile_graph, program = backward.compile, backward.program

    def compiled() -> Callable[[list[Any]], Any]:
        try:
            with same_random_state_on_failure():
                return compile_graph()
        except Exception as error:  # noqa: BLE001 (whatever a code generator raises; the backward runs all the same)
            eager = EagerBackward(subject, program, error)
        eager.announce()
        return eager

    return replace(code, backward=replace(backward, compile=compiled))


def eager_call(function: Callable[..., Any], error: Exception) -> NotCompiled:
    """Return the record of a function that ran in eager because its direct compilation failed."""
    name = str(getattr(function, "__qualname__", type(function).__qualname__))
    fallback = _Fallback(Subject(function, name.rsplit(".", 1)[-1], name, "direct", None), error)
    fallback.calls = 1
    return fallback.record()


def is_user_error(error: Exception) -> bool:
    """Return True if the request itself is wrong (an option, a policy), so that it must be reported at
    once."""
    return isinstance(error, UserError) and not isinstance(error, UnsupportedError | BackendError)


def _cause(error: Exception) -> NotCompiledCause:
    match error:
        case UnsupportedError():
            return "unsupported"
        case BackendError():
            return "backend"
        case _:
            return "internal"
