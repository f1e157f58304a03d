"""What an activation checkpoint finds changed when its function would run again.

Invariant: the backward computes with no value that a second run would not give.  For an argument that has
changed it raises as eager's does; a change of what the function reads besides is refused.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from aotlens.capture.shared_arguments import tensors_of
from aotlens.capture.storage import Storage
from aotlens.capture.tape import TRACK, Tape
from aotlens.errors import UnsupportedError
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node

CHANGED = "one of the variables needed for gradient computation has been modified by an inplace operation"
"""Autograd's words, by which a backward that eager refuses is known."""


class CheckpointFrame:
    """One outermost checkpoint: what its function was called with, and reads besides."""

    def __init__(self, tape: Tape, region: int) -> None:
        self._tape = tape
        self._region = region
        self._arguments: list[tuple[Any, int]] = []
        self._inner_arguments: list[tuple[Any, int, Origin]] = []
        self._read: dict[int, Storage] = {}
        """Storages of the nodes that the function reads and has not made, by the node's identity."""
        self._writes_before: dict[int, int] = {}
        self._changed: tuple[int, dict[int, Origin]] = -1, {}
        """The writes since then by what was read, and how many operators had run when that was asked."""

    def hold(self, given: Sequence[Any]) -> None:
        """The tensors among the arguments; eager saves them, and so counts the writes to them."""
        if not torch.is_grad_enabled():
            return
        tensors = (one for one in given if isinstance(one, torch.Tensor) and not one.is_inference())
        self._arguments += [(tensor, tensor._version) for tensor in tensors]

    def hold_inner(self, given: Sequence[Any]) -> None:
        """The same of a checkpoint within this one, when that has run."""
        tensors = (one for one in given if isinstance(one, torch.Tensor) and one.requires_grad)
        self._inner_arguments += [(tensor, tensor._version, self._tape.origin) for tensor in tensors]

    def read(self, args: Iterable[Any]) -> None:
        """What one of its operators takes."""
        for tensor in (tensor for arg in args for tensor in tensors_of(arg)):
            tracked = getattr(tensor, TRACK, None)
            if tracked is not None and not self._is_inside(tracked.storage.base):
                self._read[id(self._tape.node_of(tensor))] = tracked.storage

    def leave(self) -> None:
        """Call it when the function has run."""
        self._writes_before = {id(storage): len(storage.writes) for storage in self._read.values()}

    def check(self, node: Node) -> None:
        """Call it where the backward reads a value that it would compute again.

        Raises:
            RuntimeError: eager's, for an argument that was written to.
            UnsupportedError: the value depends on what the function reads by itself, which was, or on a
                checkpoint within it that was called with what it writes to afterwards.
        """
        for tensor, version in self._arguments:
            if tensor._version != version:
                kind = f"[{tensor.dtype} {list(tensor.shape)}]"
                raise RuntimeError(
                    f"{CHANGED}: {kind}, an argument of a checkpointed function, is at version "
                    f"{tensor._version}; expected version {version} instead"
                )
        for tensor, version, origin in self._inner_arguments:
            if tensor._version != version:
                raise UnsupportedError(
                    "a write to an argument of a checkpointed function within another one",
                    origin.place.innermost,
                    "pass a clone to the function",
                )
        if self._changed[0] != self._tape.calls_so_far:
            writes = ((at, self._write(storage)) for at, storage in self._read.items())
            self._changed = self._tape.calls_so_far, {at: write for at, write in writes if write is not None}
        changed = self._changed[1]
        written = self._met(node, changed) if changed else None
        if written is not None:
            raise UnsupportedError(
                "a write to a tensor that a checkpointed function reads, after the function has run: eager "
                "computes it again with the new values",
                written.place.innermost,
                "pass a clone to the function",
            )

    def _write(self, storage: Storage) -> Origin | None:
        """A later write; what checkpointed functions write counts once, as their other effects do."""
        later = storage.writes[self._writes_before.get(id(storage), 0) :]
        return next((one.origin for one in later if one.origin.checkpoint is None), None)

    def _met(self, node: Node, changed: dict[int, Origin]) -> Origin | None:
        """The write to the first of those nodes that the value is computed from."""
        todo, seen = [node], set[int]()
        while todo:
            one = todo.pop()
            if id(one) in changed:
                return changed[id(one)]
            if id(one) not in seen and self._is_inside(one):
                seen.add(id(one))
                todo += one.inputs()
        return None

    def _is_inside(self, node: Node) -> bool:
        mark = node.origin.checkpoint
        return mark is not None and mark.region == self._region
