"""A Dynamo graph, recorded so that its stages can still run after Dynamo has released it.

Invariant: the record holds fake tensors, and no tensor of the caller's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from aotlens.capture.dynamo import GraphCall
from aotlens.compile_cache.environment import CallModes
from aotlens.torch_api.dynamo.state import tracing

__all__ = ["Replay"]


@dataclass(frozen=True, slots=True)
class Replay:
    """One call of a graph."""

    call: GraphCall
    """With fake tensors instead of the inputs."""
    node_metadata: tuple[tuple[fx.Node, dict[str, Any]], ...]
    """Each node's metadata, which Dynamo removes when it is done."""
    modes: CallModes

    @classmethod
    def from_call(cls, call: GraphCall, fakes: list[Any]) -> "Replay":
        modules = (module for module in call.graph.modules() if isinstance(module, fx.GraphModule))
        notes = tuple((node, dict(node.meta)) for module in modules for node in module.graph.nodes)
        return cls(replace(call, values=tuple(fakes)), notes, CallModes.now())

    @contextmanager
    def restored(self) -> Iterator[GraphCall]:
        """Within the context, the graph has its metadata and the thread its modes, as at the original
        call."""
        for node, meta in self.node_metadata:
            node.meta.update(meta)
        with tracing(None), self.modes.restored():
            yield self.call
