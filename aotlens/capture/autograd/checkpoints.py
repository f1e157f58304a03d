"""Activation checkpoints of the recorded function: the region, its policy, what its recomputation reads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from aotlens.capture.autograd.saved_tensors import SavedValues
from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording
from aotlens.capture.overlapping_arguments import tensors_of
from aotlens.capture.storage import Storage
from aotlens.ir.origin import Checkpoint, CheckpointMark, Origin
from aotlens.ir.program import Node
from aotlens.unsupported import unsupported

CHANGED = "one of the variables needed for gradient computation has been modified by an inplace operation"
"""Autograd's words, by which a backward that eager refuses is known."""


class CheckpointFrame:
    """One outermost checkpoint: what its function was called with, and reads besides."""

    def __init__(self, tape: Recording, region: int) -> None:
        self._tape = tape
        self._region = region
        self._arguments: list[tuple[Any, int]] = []
        self._inner_arguments: list[tuple[Any, int, Origin]] = []
        self._read: dict[int, Storage] = {}
        """Storages of the nodes that the function reads and has not made, by the node's identity."""
        self._writes_before: dict[int, int] = {}
        self._changed: tuple[int, dict[int, Origin]] = -1, {}
        """The writes since then by what was read, and how many operators had run when that was asked."""

    def save_arguments(self, arguments: Sequence[Any]) -> None:
        """The tensors among the arguments; eager saves them, and so counts the writes to them."""
        if not torch.is_grad_enabled():
            return
        tensors = (arg for arg in arguments if isinstance(arg, torch.Tensor) and not arg.is_inference())
        self._arguments += [(tensor, tensor._version) for tensor in tensors]

    def save_inner_arguments(self, arguments: Sequence[Any]) -> None:
        """The same of a checkpoint within this one, when that has run."""
        tensors = (arg for arg in arguments if isinstance(arg, torch.Tensor) and arg.requires_grad)
        self._inner_arguments += [(tensor, tensor._version, self._tape.origin) for tensor in tensors]

    def note_reads(self, args: Iterable[Any]) -> None:
        """What one of its operators takes."""
        for tensor in (tensor for arg in args for tensor in tensors_of(arg)):
            tracked = getattr(tensor, TRACKED_ATTRIBUTE, None)
            if tracked is not None and not self._is_inside(tracked.storage.base):
                self._read[id(self._tape.node_of(tensor))] = tracked.storage

    def finish(self) -> None:
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
                raise unsupported("write-in-nested-checkpoint", origin.location.innermost)
        if self._changed[0] != self._tape.call_count:
            writes = ((node_id, self._write(storage)) for node_id, storage in self._read.items())
            self._changed = (
                self._tape.call_count,
                {node_id: write for node_id, write in writes if write is not None},
            )
        changed = self._changed[1]
        written = self._first_write_upstream(node, changed) if changed else None
        if written is not None:
            raise unsupported("write-after-checkpoint", written.location.innermost)

    def _write(self, storage: Storage) -> Origin | None:
        """A later write; what checkpointed functions write counts once, as their other effects do."""
        later = storage.writes[self._writes_before.get(id(storage), 0) :]
        return next((write.origin for write in later if write.origin.checkpoint is None), None)

    def _first_write_upstream(self, node: Node, changed: dict[int, Origin]) -> Origin | None:
        """The write to the first of those nodes that the value is computed from."""
        todo, seen = [node], set[int]()
        while todo:
            source = todo.pop()
            if id(source) in changed:
                return changed[id(source)]
            if id(source) not in seen and self._is_inside(source):
                seen.add(id(source))
                todo += source.inputs()
        return None

    def _is_inside(self, node: Node) -> bool:
        mark = node.origin.checkpoint
        return mark is not None and mark.region == self._region


_MARKS_BY_NAME = {
    "MUST_SAVE": CheckpointMark.MUST_SAVE,
    "PREFER_SAVE": CheckpointMark.PREFER_SAVE,
    "PREFER_RECOMPUTE": CheckpointMark.PREFER_RECOMPUTE,
    "MUST_RECOMPUTE": CheckpointMark.MUST_RECOMPUTE,
    "MUST_CPU_OFFLOAD": CheckpointMark.MUST_SAVE,
    "PREFER_CPU_OFFLOAD": CheckpointMark.PREFER_SAVE,
}
MARKS = {policy: _MARKS_BY_NAME[policy.name] for policy in CheckpointPolicy}


class Checkpoints:
    """The checkpoints of one recording."""

    def __init__(self, saved: SavedValues) -> None:
        self._saved = saved
        self._frame: CheckpointFrame | None = None
        self._count = 0
        self._policy: Callable[..., Any] | None = None

    @contextmanager
    def region(self, context_fn: Callable[[], Any] | None, arguments: Sequence[Any] = ()) -> Iterator[None]:
        """Within it, operators belong to a new region; an inner checkpoint belongs to the outer's.

        `given` is what eager calls the function with again; Dynamo does not tell that from what it reads.
        """
        if self._frame is not None:
            yield
            self._frame.save_inner_arguments(arguments)
            return
        frame = self._frame = CheckpointFrame(self._saved.tape, self._count)
        frame.save_arguments(arguments)
        forward, _ = context_fn() if context_fn is not None else (nullcontext(), None)
        self._policy = getattr(forward, "policy_fn", None)
        try:
            with (
                nullcontext() if self._policy is not None else forward,
                self._saved.recomputed(frame.check),
            ):
                yield
        finally:
            self._frame = None
            frame.finish()
            self._count += 1

    @property
    def active(self) -> bool:
        return self._frame is not None

    def mark(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checkpoint:
        """What the region says of the value that an operator is about to compute."""
        assert self._frame is not None  # or there is no region
        self._frame.note_reads((*args, *kwargs.values()))
        if self._policy is None:
            return Checkpoint(self._count, CheckpointMark.PREFER_RECOMPUTE)
        context = SelectiveCheckpointContext(is_recompute=False)
        answer = self._policy(context, func, *args, **kwargs)
        if isinstance(answer, bool):
            answer = CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
        return Checkpoint(self._count, MARKS[answer])
