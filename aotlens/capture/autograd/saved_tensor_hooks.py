"""The caller's saved-tensor hooks, where both are graph modules that can be recorded.

Invariant: other hooks are not recorded; they run when the compiled function saves and reads values.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from aotlens.capture.inputs.module_tensors import call_with_tensors, module_tensors
from aotlens.capture.provenance.dynamo_nodes import spans_of_node
from aotlens.capture.recorder import Recorder
from aotlens.ir.origin import NO_ORIGIN, Frames, Origin
from aotlens.torch_api.saved_tensor_hooks import graph_module_hooks, saved_tensor_hooks_filter


@dataclass(frozen=True, slots=True)
class SavedTensorHooks:
    """A pair of graph modules at the top of the caller's stack of saved-tensor hooks."""

    pack: fx.GraphModule
    unpack: fx.GraphModule
    values: str
    """Which saved values the hooks get: `donated` (buffers without another owner), `no_static` (all except
    parameters and buffers) or `all`."""


def callers_hooks() -> SavedTensorHooks | None:
    hooks = graph_module_hooks()
    return None if hooks is None else SavedTensorHooks(*hooks, saved_tensor_hooks_filter())


class HookRunner(fx.Interpreter):
    """Run one hook on fake tensors, with the source locations of its nodes, or of the saved value.

    Partitioning runs it, once it knows which values are saved.
    """

    def __init__(self, hook: fx.GraphModule, recorder: Recorder) -> None:
        super().__init__(hook)
        self.extra_traceback = False
        self._recorder = recorder
        attributes = (self.fetch_attr(str(node.target)) for node in hook.graph.find_nodes(op="get_attr"))
        own = [*module_tensors(hook).values(), *attributes]
        self._own = {id(value): _lifted(value) for value in own if isinstance(value, torch.Tensor)}
        self._origin = Origin(NO_ORIGIN, "")

    def run_for(self, value: Any, origin: Origin) -> Any:
        """Return the hook's result for one value."""
        self._origin = origin
        return self.run(value)

    def run_node(self, n: fx.Node) -> Any:
        spans = spans_of_node(n)
        origin = replace(self._origin, location=Frames(known_spans=spans)) if spans else self._origin
        with self._recorder.inside_operator(origin):
            return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._read(super().get_attr(target, args, kwargs))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        inner = self.fetch_attr(target)
        tensors = {name: self._read(tensor) for name, tensor in module_tensors(inner).items()}
        return call_with_tensors(inner, tensors, args, kwargs)

    def _read(self, value: Any) -> Any:
        """Return the recording's fake tensor for a tensor that belongs to the hook, in its own dimensions."""
        lifted = self._own.get(id(value), value)
        while isinstance(value, torch.Tensor) and lifted.dim() > value.dim():
            lifted = lifted.select(0, 0)
        return lifted


def _lifted(tensor: torch.Tensor) -> torch.Tensor:
    """Return an alias with at least two dimensions, which is read at each call.

    A backend inlines the values of smaller constants in its code, so a change of the tensor would be missed.
    """
    lifted = tensor.detach()
    while lifted.dim() < 2:
        lifted = lifted.unsqueeze(0)
    return lifted
