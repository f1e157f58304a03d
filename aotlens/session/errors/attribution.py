"""Which line of the user's is to blame for an error that compiled code met while it ran.

A mistake that no shape shows (an index out of range, a type that a kernel refuses) is met by the compiled
graph, whose frames are none of the user's.  The same graph in eager, node by node, tells whose line it is,
and whether eager agrees that there is a mistake at all.
"""

from collections.abc import Callable
from typing import Any

from torch import fx

from aotlens.capture.provenance.dynamo_nodes import frames_of_node
from aotlens.errors import DYNAMO_FRAMES, AotlensError
from aotlens.session.dynamo.errors import ALONE
from aotlens.session.isolation import isolated, raised_by_caller

__all__ = ["attribute_errors", "raise_if_eager_fails"]


def attribute_errors(compiled: Callable[..., Any], graph: fx.GraphModule) -> Callable[..., Any]:
    """The compiled graph; an error of a call gets the user's frames as Dynamo notes them."""
    if getattr(compiled, "_boxed_call", False):  # it empties its arguments, so no call can be repeated
        return compiled

    def call(*args: Any) -> Any:
        try:
            return compiled(*args)
        except AotlensError:
            raise
        except Exception as error:
            if not raised_by_caller(error):
                _note_if_eager_agrees(error, graph, args)
            raise

    return call


def raise_if_eager_fails(error: Exception, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Raises what the function itself raises on these arguments, else the error, which is then ours."""
    function(*args, **kwargs)
    setattr(error, ALONE, True)
    raise error


class _EagerInterpreter(fx.Interpreter):
    """Runs a graph in eager and knows at which node it is."""

    current_node: fx.Node | None = None

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.extra_traceback = False

    def run_node(self, n: fx.Node) -> Any:
        self.current_node = n
        return super().run_node(n)

    def attach_frames(self, error: Exception) -> None:
        """Give the error the user's frames of the node that it met."""
        setattr(
            error, DYNAMO_FRAMES, frames_of_node(self.current_node) if self.current_node is not None else []
        )


def _note_if_eager_agrees(error: Exception, graph: fx.GraphModule, args: tuple[Any, ...]) -> None:
    """Note on the error whether eager meets it too, and where; on copies of the caller's tensors."""
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
    setattr(error, ALONE, True)
