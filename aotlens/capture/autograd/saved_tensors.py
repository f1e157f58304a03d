"""What autograd saves while the caller has hooks on saved tensors.

Invariant: a value that is another when the backward reads it than when it was saved reaches no program.
Without hooks autograd reads the tensor, or refuses; with hooks what it reads is theirs to say (a copy keeps
the former value, the tensor itself does not), and the recording cannot ask them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording
from aotlens.capture.operators import aten
from aotlens.capture.storage import Storage
from aotlens.capture.subclasses import is_wrapper
from aotlens.ir.origin import Frames
from aotlens.ir.program import Node
from aotlens.torch_api.fake import FakeTensor
from aotlens.unsupported import unsupported

Packed = tuple[Any, Node | None, Frames]
"""A saved tensor, its value and where it was saved; no value for a wrapper."""


class SavedValues:
    """Stands in the place of the caller's hooks while the function is recorded."""

    def __init__(self, tape: Recording) -> None:
        self.tape = tape
        self._former: dict[int, Frames] = {}
        """Nodes that stand for values which have changed since they were saved, by identity."""

    def pack(self, tensor: Any) -> Packed:
        known = isinstance(tensor, torch.Tensor) and not is_wrapper(tensor)
        return tensor, self.tape.node_of(tensor) if known else None, self.tape.current_frames()

    def unpack(self, packed: Packed) -> Any:
        """The saved tensor; another one, with a node of its own, where its value has changed."""
        tensor, node, frames = packed
        if node is None or self.tape.node_of(tensor) is node:
            return tensor
        tape = self.tape
        with tape.fake_mode, torch.no_grad(), tape.adding("joint", "a value that changed after it was saved"):
            former = tape.emit(aten.clone.default, node)
            fake = former.val.detach()
        tape.track(fake, Storage(former, fake))
        self._former[id(former)] = frames
        return fake

    @contextmanager
    def recomputed(self, check: Callable[[Node], None]) -> Iterator[None]:
        """Within it, what is saved is computed again for the backward, whatever is written to it since.

        `check` is called with its node before.
        """
        with torch.autograd.graph.saved_tensors_hooks(
            self._pack_recomputed, partial(self._unpack_recomputed, check)
        ):
            yield

    def _pack_recomputed(self, tensor: Any) -> tuple[Any, Node | None]:
        """What autograd saves, which it detaches for its hooks, and its value now.

        Of what torch makes while it tries a function of a higher-order operator, nothing is known.
        """
        is_tried = type(tensor) is FakeTensor and not hasattr(tensor, TRACKED_ATTRIBUTE)
        return tensor, None if is_tried or is_wrapper(tensor) else self.tape.node_of(tensor)

    def _unpack_recomputed(self, check: Callable[[Node], None], packed: tuple[Any, Node | None]) -> Any:
        tensor, node = packed
        if node is not None:
            check(node)
        if node is not None and self.tape.node_of(tensor) is not node:
            self.tape.track(tensor, Storage(node, tensor))
        return tensor

    def reject_changed(self, nodes: Iterable[Node]) -> None:
        """Call it with the nodes of a program.

        Raises:
            UnsupportedError: one of them is the former value of a saved tensor.
        """
        if not self._former:
            return
        for node in nodes:
            frames = self._former.get(id(node))
            if frames is not None:
                raise unsupported("saved-under-hooks-then-written", frames.innermost)
