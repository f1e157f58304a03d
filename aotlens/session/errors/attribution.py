"""Find the user's line that caused an error while compiled code ran.

An error that no shape reveals (an index out of range, a dtype that a kernel rejects) is raised in the
compiled graph, which has no frames of the user's.  Running the same graph in eager, node by node, finds the
line and shows whether eager fails too.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from torch import fx

from aotlens.capture.provenance.dynamo_nodes import frames_of_node
from aotlens.errors import DYNAMO_FRAMES, AotlensError
from aotlens.session.dynamo.errors import ENGINE_FAILS_ALONE
from aotlens.session.isolation import isolated, raised_by_caller

__all__ = ["attribute_errors", "raise_eager_or_engine_error"]


def attribute_errors(compiled: Callable[..., Any], graph: fx.GraphModule) -> Callable[..., Any]:
    """Return the compiled graph, with the user's frames attached to errors of its calls, as Dynamo does."""
    if getattr(compiled, "_boxed_call", False):  # it clears its arguments, so no call can be repeated
        return compiled

    def call(*args: Any) -> Any:
        try:
            return compiled(*args)
        except AotlensError:
            raise
        except Exception as error:
            if not raised_by_caller(error):
                _note_what_eager_does(error, graph, args)
            raise

    return call


def raise_eager_or_engine_error(
    error: Exception, function: Callable[..., Any], args: Any, kwargs: Any
) -> NoReturn:
    """Call the function in eager and raise its own error.

    If it raises none, only the engine fails, and its `error` is raised.
    """
    function(*args, **kwargs)
    setattr(error, ENGINE_FAILS_ALONE, True)
    raise error


class _EagerInterpreter(fx.Interpreter):
    """Runs a graph in eager and records the current node."""

    current_node: fx.Node | None = None

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.extra_traceback = False

    def run_node(self, n: fx.Node) -> Any:
        self.current_node = n
        return super().run_node(n)

    def attach_frames(self, error: Exception) -> None:
        """Attach the user's frames of the current node to the error."""
        setattr(
            error, DYNAMO_FRAMES, frames_of_node(self.current_node) if self.current_node is not None else []
        )


def _note_what_eager_does(error: Exception, graph: fx.GraphModule, args: tuple[Any, ...]) -> None:
    """Record on the error whether eager fails too, and where; runs on copies of the caller's tensors."""
    steps = _EagerInterpreter(graph)
    try:
        with isolated():
            from aotlens.verify.tensors.prepared_call import copies, prepare_call  # only after an error

            (own,) = copies(prepare_call(graph, args), 1)
            steps.run(*own.args)
    except Exception as eagers:  # noqa: BLE001 (whatever the operator raises)
        if type(eagers) is type(error):
            steps.attach_frames(error)
        return
    setattr(error, ENGINE_FAILS_ALONE, True)
