"""Which line of the user's is to blame for an error that compiled code met while it ran.

A mistake that no shape shows (an index out of range, a type that a kernel refuses) is met by the compiled
graph, whose frames are none of the user's.  The same graph in eager, node by node, tells whose line it is,
and whether eager agrees that there is a mistake at all.
"""

import re
import traceback
from collections.abc import Callable
from typing import Any

from torch import fx

from aotlens.errors import AotlensError
from aotlens.session.dynamo_errors import ALONE, STACK

__all__ = ["blaming", "eager_agrees", "in_eager"]

_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)


def blaming(compiled: Callable[..., Any], graph: fx.GraphModule) -> Callable[..., Any]:
    """The compiled graph; an error of a call gets the user's frames as Dynamo notes them."""
    if getattr(compiled, "_boxed_call", False):  # it empties its arguments, so no call can be repeated
        return compiled

    def call(*args: Any) -> Any:
        try:
            return compiled(*args)
        except AotlensError:
            raise
        except Exception as error:
            _compare(error, graph, args)
            raise

    return call


def in_eager(graph: fx.GraphModule, refused: Callable[[], None]) -> Callable[..., Any]:
    """The graph as eager runs it, where the engine refused it; says so once eager has no trouble with it."""
    told = False

    def call(*args: Any) -> Any:
        nonlocal told
        steps = _Steps(graph)
        try:
            result = steps.run(*args)
        except Exception as error:
            steps.note(error)
            raise
        if not told:
            told = True
            refused()
        return result

    return call


def eager_agrees(error: Exception, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Raises what the function itself raises on these arguments, else the error, which is then ours."""
    function(*args, **kwargs)
    setattr(error, ALONE, True)
    raise error


class _Steps(fx.Interpreter):
    """Runs a graph in eager and knows at which node it is."""

    at: fx.Node | None = None

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.extra_traceback = False

    def run_node(self, n: fx.Node) -> Any:
        self.at = n
        return super().run_node(n)

    def note(self, error: Exception) -> None:
        """Give the error the user's frames of the node that it met."""
        frames = _FRAME.finditer((self.at.meta.get("stack_trace") if self.at is not None else "") or "")
        stack = [traceback.FrameSummary(one["file"], int(one["line"]), one["name"]) for one in frames]
        setattr(error, STACK, stack)


def _compare(error: Exception, graph: fx.GraphModule, args: tuple[Any, ...]) -> None:
    """Whether eager meets the error too, and where."""
    steps = _Steps(graph)
    try:
        steps.run(*args)
    except Exception as eagers:  # noqa: BLE001 (whatever the operator raises)
        if type(eagers) is type(error):
            steps.note(error)
        return
    setattr(error, ALONE, True)
