"""Source locations of the nodes of a Dynamo graph, and its run on a recorder, each node at its own."""

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import fx

from aotlens.capture.provenance.frames import is_user_file
from aotlens.ir.origin import Frames
from aotlens.model.report import Span


def spans_of_node(node: fx.Node) -> tuple[Span, ...]:
    """Return the user's source spans of one node, innermost first; whole lines if Dynamo knows no columns."""
    exact = node.meta.get("aotlens_spans")
    if exact:
        return tuple(Span(*location) for location in exact if is_user_file(location[0]))
    lines = ((frame.filename, frame.lineno or 1) for frame in reversed(frames_of_node(node)))
    return tuple(Span(file, line, 0, line, 0) for file, line in lines if is_user_file(file))


_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<name>.+))?', re.MULTILINE)


def frames_of_node(node: fx.Node) -> list[traceback.FrameSummary]:
    """Return Dynamo's frames when it created the node, outermost first."""
    return [
        traceback.FrameSummary(match["file"], int(match["line"]), match["name"] or "", lookup_line=False)
        for match in _FRAME.finditer(node.meta.get("stack_trace") or "")
    ]


class LocatedRunner(fx.Interpreter):
    """Runs a graph on a recorder, with the source location of each node."""

    def __init__(self, module: fx.GraphModule, recorder: Any) -> None:
        super().__init__(module)
        self.recorder = recorder
        self.extra_traceback = False

    @contextmanager
    def at_node(self, node: fx.Node) -> Iterator[None]:
        self.recorder.origins.known_frames = Frames(known_spans=spans_of_node(node))
        try:
            yield
        finally:
            self.recorder.origins.known_frames = None

    def run_node(self, n: fx.Node) -> Any:
        with self.at_node(n):
            return super().run_node(n)

    def nested_runner(self, body: fx.GraphModule) -> "LocatedRunner":
        """Return a runner for a nested graph."""
        return LocatedRunner(body, self.recorder)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(target, "__name__", "") == CHECKPOINT:
            body, *operands = args
            checkpoints = self.recorder.checkpoints
            arguments = operands if checkpoints.active else ()
            with checkpoints.region(body.meta.get("_checkpoint_context_fn"), arguments):
                return self.nested_runner(body).run(*operands)
        return super().call_function(target, args, kwargs)


def located_call(module: Any, recorder: Any) -> Callable[..., Any] | None:
    """Return a callable that runs a graph module node by node, each with its source location.

    None if the module must be called itself, or if its nodes have no locations.
    """
    if not isinstance(module, fx.GraphModule) or "forward" in vars(module):
        return None
    if module._forward_hooks or module._forward_pre_hooks:
        return None
    placed = any("stack_trace" in node.meta or "aotlens_spans" in node.meta for node in module.graph.nodes)
    return LocatedRunner(module, recorder).run if placed else None


CHECKPOINT = "tag_activation_checkpoint"
"""Dynamo's operator for `torch.utils.checkpoint`, called with a nested graph."""
