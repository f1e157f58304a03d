"""Saved-tensor hooks: what replaces the caller's while the function is recorded, and hooks as graphs.

Hooks of which both are graph modules are recorded; others run when the compiled function saves and reads.

Invariant: a value that changes between save and read never reaches a program.  Without hooks autograd reads
the tensor or raises; with hooks the result depends on them (a copy retains the old value, the tensor itself
does not), and the recording cannot ask them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx

from aotlens.capture.graph import Recording
from aotlens.capture.inputs.module_tensors import call_with_tensors, module_tensors
from aotlens.capture.operators import aten
from aotlens.capture.provenance.dynamo_nodes import spans_of_node
from aotlens.capture.storage import Storage, find_tracked
from aotlens.capture.subclasses import is_wrapper
from aotlens.ir.origin import NO_ORIGIN, Frames, Origin
from aotlens.ir.program import Node
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.saved_tensor_hooks import graph_module_hooks, saved_tensor_hooks_filter
from aotlens.unsupported import unsupported

Packed = tuple[Any, Node | None, Frames]
"""A saved tensor, its node (None for a wrapper), and the user frames where it was saved."""


class SavedValues:
    """Saved-tensor hooks that replace the caller's hooks while the function is recorded."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._old_values: dict[int, Frames] = {}
        """Nodes for the old values of saved tensors that have changed since, by identity."""

    def pack(self, tensor: Any) -> Packed:
        """Return the tensor and its node; tensors of torch's own trial runs of a subgraph have none."""
        is_tried = type(tensor) is FakeTensor and find_tracked(tensor) is None
        known = isinstance(tensor, torch.Tensor) and not is_tried and not is_wrapper(tensor)
        return tensor, self.recording.node_of(tensor) if known else None, self.recording.current_frames()

    def unpack(self, packed: Packed) -> Any:
        """Return the saved tensor, or a fake tensor with its own node if the value has changed."""
        tensor, node, frames = packed
        if node is None or self.recording.node_of(tensor) is node:
            return tensor
        recording = self.recording
        with (
            recording.fake_mode,
            torch.no_grad(),
            recording.adding("joint", "a value that changed after it was saved"),
        ):
            former = recording.emit(aten.clone.default, node)
            fake = former.val.detach()
        recording.track(fake, Storage(former, fake))
        self._old_values[id(former)] = frames
        return fake

    @contextmanager
    def recomputed(self, check: Callable[[Node], None]) -> Iterator[None]:
        """Save values in the block for recomputation: the backward reads them whatever is written since.

        `check` is called with a value's node before it is read.
        """
        with torch.autograd.graph.saved_tensors_hooks(self.pack, partial(self._unpack_recomputed, check)):
            yield

    def _unpack_recomputed(self, check: Callable[[Node], None], packed: Packed) -> Any:
        """Return what autograd saved, which it detaches for its hooks, for a check of its node."""
        tensor, node, _ = packed
        if node is not None:
            check(node)
        if node is not None and self.recording.node_of(tensor) is not node:
            self.recording.track(tensor, Storage(node, tensor))
        return tensor

    def reject_changed(self, nodes: Iterable[Node], replacements: Mapping[int, Node]) -> None:
        """Check the nodes of a program; `replacements` has those that replace recorded nodes, by identity.

        Raises:
            UnsupportedError: a node is the old value of a saved tensor.
        """
        if not self._old_values:
            return
        old_values = {
            id(replacements[key]) if key in replacements else key: frames
            for key, frames in self._old_values.items()
        }
        for node in nodes:
            frames = old_values.get(id(node))
            if frames is not None:
                raise unsupported("saved-under-hooks-then-written", frames.innermost)


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

    def __init__(self, hook: fx.GraphModule, recording: Recording) -> None:
        super().__init__(hook)
        self.extra_traceback = False
        self._recording = recording
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
        with self._recording.inside_operator(origin):
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
