"""What autograd saves while the caller has saved-tensor hooks.

Invariant: a value that changes between save and read never reaches a program.  Without hooks autograd reads
the tensor or raises; with hooks the result depends on them (a copy retains the old value, the tensor itself
does not), and the recording cannot ask them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from aotlens.capture.graph import Recording
from aotlens.capture.operators import aten
from aotlens.capture.storage import Storage, find_tracked
from aotlens.capture.subclasses import is_wrapper
from aotlens.ir.origin import Frames
from aotlens.ir.program import Node
from aotlens.torch_api.fake.tensors import FakeTensor
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
        """Check the nodes of a program, in which these stand for recorded nodes, by identity.

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
