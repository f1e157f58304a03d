"""Activation checkpoints in the recorded function: regions, policies, and what a recomputation reads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from aotlens.capture.autograd.graph_walk import requires_grad
from aotlens.capture.autograd.saved_tensor_hooks import SavedValues
from aotlens.capture.graph import Recording
from aotlens.capture.mutations.writability import tensors_of
from aotlens.capture.storage import Storage, find_tracked
from aotlens.ir.origin import Checkpoint, CheckpointMark, Origin
from aotlens.ir.program import Node
from aotlens.unsupported import unsupported

VERSION_ERROR = (
    "one of the variables needed for gradient computation has been modified by an inplace operation"
)
"""The text by which we recognise autograd's version counter error."""


class _CheckpointFrame:
    """The arguments and the free variables of one outermost checkpoint."""

    def __init__(self, recording: Recording, region: int) -> None:
        self._recording = recording
        self._region = region
        self._arguments: list[tuple[Any, int]] = []
        self._inner_arguments: list[tuple[Any, int, Origin]] = []
        self._reads: dict[int, tuple[Storage, int, int]] = {}
        """Storages from outside the region that it reads, by node identity, each with the number of its
        writes and of its metadata mutations at the read."""
        self._changed: tuple[int, dict[int, Origin]] = -1, {}
        """The number of calls at the last check, and the later writes to `_reads` that it found."""

    def save_arguments(self, arguments: Sequence[Any]) -> None:
        """Remember the tensor arguments with their versions: eager saves them, so later writes are errors."""
        if not torch.is_grad_enabled():
            return
        tensors = (arg for arg in arguments if isinstance(arg, torch.Tensor) and not arg.is_inference())
        self._arguments += [(tensor, tensor._version) for tensor in tensors]

    def save_inner_arguments(self, arguments: Sequence[Any]) -> None:
        """Remember the tensor arguments of a nested checkpoint after it has run."""
        tensors = filter(requires_grad, arguments)
        self._inner_arguments += [(tensor, tensor._version, self._recording.origin) for tensor in tensors]

    def note_reads(self, args: Iterable[Any]) -> None:
        """Remember the storages that an operator of the region reads."""
        for tensor in (tensor for arg in args for tensor in tensors_of(arg)):
            tracked = find_tracked(tensor)
            if tracked is not None and not self._is_inside(tracked.storage.base):
                storage = tracked.storage
                counts = len(storage.writes), len(storage.metadata_mutations)
                self._reads[id(self._recording.node_of(tensor))] = storage, *counts

    def check(self, node: Node) -> None:
        """Check that the backward may recompute a value of this region.

        Raises:
            RuntimeError: an argument was written to since, as in eager.
            UnsupportedError: the value depends on a free variable, or on an argument of a nested
                checkpoint, that was written to since.
        """
        for tensor, version in self._arguments:
            if tensor._version != version:
                kind = f"[{tensor.dtype} {list(tensor.shape)}]"
                raise RuntimeError(
                    f"{VERSION_ERROR}: {kind}, an argument of a checkpointed function, is at version "
                    f"{tensor._version}; expected version {version} instead"
                )
        for tensor, version, origin in self._inner_arguments:
            if tensor._version != version:
                raise unsupported("write-in-nested-checkpoint", origin.location.innermost)
        if self._changed[0] != len(self._recording.calls):
            writes = ((node_id, _later_write(*read)) for node_id, read in self._reads.items())
            self._changed = (
                len(self._recording.calls),
                {node_id: write for node_id, write in writes if write is not None},
            )
        changed = self._changed[1]
        written = self._first_write_upstream(node, changed) if changed else None
        if written is not None:
            raise unsupported("write-after-checkpoint", written.location.innermost)

    def _first_write_upstream(self, node: Node, changed: dict[int, Origin]) -> Origin | None:
        """Return the write to the first changed node that the value is computed from."""
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


def _later_write(storage: Storage, writes: int, mutations: int) -> Origin | None:
    """Return a later write, or a later assignment to `.data`; those by checkpointed functions are not
    repeated, so they do not count."""
    later = (*storage.writes[writes:], *storage.metadata_mutations[mutations:])
    return next((write.origin for write in later if write.origin.checkpoint is None), None)


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
    """The activation checkpoints of one recording."""

    def __init__(self, saved: SavedValues) -> None:
        self._saved = saved
        self._frame: _CheckpointFrame | None = None
        self._region = 0
        """The index of the current region, or of the next one."""
        self._policy: Callable[..., Any] | None = None

    @contextmanager
    def region(self, context_fn: Callable[[], Any] | None, arguments: Sequence[Any] = ()) -> Iterator[None]:
        """Record operators in a new region; a nested checkpoint belongs to the outer region.

        torch enters it in place of `torch.utils.checkpoint`, and `LocatedRunner` for Dynamo's operator.
        `arguments` are what eager passes on recomputation; Dynamo does not separate them from free variables.
        """
        if self._frame is not None:
            yield
            self._frame.save_inner_arguments(arguments)
            return
        frame = self._frame = _CheckpointFrame(self._saved.recording, self._region)
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
            self._region += 1

    @property
    def active(self) -> bool:
        return self._frame is not None

    def mark(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checkpoint:
        """Return the policy's mark for the value that an operator is about to compute."""
        assert self._frame is not None  # only called within a region
        self._frame.note_reads((*args, *kwargs.values()))
        if self._policy is None:
            return Checkpoint(self._region, CheckpointMark.PREFER_RECOMPUTE)
        context = SelectiveCheckpointContext(is_recompute=False)
        policy = self._policy(context, func, *args, **kwargs)
        if isinstance(policy, bool):
            policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
        return Checkpoint(self._region, MARKS[policy])
