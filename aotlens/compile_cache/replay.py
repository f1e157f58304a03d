"""A graph of Dynamo's, remembered so that its stages can still run after Dynamo has let go of it.

Invariant: what is remembered holds no tensor of the caller's, only their fake twins.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from aotlens.capture.dynamo import GraphCall
from aotlens.compile_cache.environment import CallModes
from aotlens.torch_api.dynamo import tracing

__all__ = ["Replay"]


@dataclass(frozen=True, slots=True)
class Replay:
    """One call of a graph."""

    call: GraphCall
    """With fake tensors in place of the inputs."""
    node_metadata: tuple[tuple[fx.Node, dict[str, Any]], ...]
    """Each node's metadata, which Dynamo takes away when it has done."""
    modes: CallModes

    @classmethod
    def from_call(cls, call: GraphCall, fakes: list[Any]) -> "Replay":
        modules = (module for module in call.graph.modules() if isinstance(module, fx.GraphModule))
        notes = tuple((node, dict(node.meta)) for module in modules for node in module.graph.nodes)
        return cls(replace(call, values=tuple(fakes)), notes, CallModes.now())

    @contextmanager
    def restored(self) -> Iterator[GraphCall]:
        """Within it the graph has its metadata and the thread its modes, as at the first time."""
        for node, meta in self.node_metadata:
            node.meta.update(meta)
        with tracing(None), self.modes.restored():
            yield self.call
