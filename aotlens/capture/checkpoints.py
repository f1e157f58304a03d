"""Activation checkpoints of the user's function: which region runs, and what its policy says of an operator.

Invariant: the function of a checkpoint runs once.  That its values are computed again in the backward is the
partition's work, which obeys the marks; so random numbers, hooks and counters are as in one run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from aotlens.capture.checkpoint_frames import CheckpointFrame
from aotlens.capture.saved_values import SavedValues
from aotlens.ir.origin import Checkpoint, Mark

_MARKS_BY_NAME = {
    "MUST_SAVE": Mark.MUST_SAVE,
    "PREFER_SAVE": Mark.PREFER_SAVE,
    "PREFER_RECOMPUTE": Mark.PREFER_RECOMPUTE,
    "MUST_RECOMPUTE": Mark.MUST_RECOMPUTE,
    "MUST_CPU_OFFLOAD": Mark.MUST_SAVE,
    "PREFER_CPU_OFFLOAD": Mark.PREFER_SAVE,
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
    def region(self, context_fn: Callable[[], Any] | None, given: Sequence[Any] = ()) -> Iterator[None]:
        """Within it, operators belong to a new region; an inner checkpoint belongs to the outer's.

        `given` is what eager calls the function with again; Dynamo does not tell that from what it reads.
        """
        if self._frame is not None:
            yield
            self._frame.hold_inner(given)
            return
        frame = self._frame = CheckpointFrame(self._saved.tape, self._count)
        frame.hold(given)
        forward, _ = context_fn() if context_fn is not None else (nullcontext(), None)
        self._policy = getattr(forward, "policy_fn", None)
        try:
            with (
                nullcontext() if self._policy is not None else forward,
                self._saved.computed_again(frame.check),
            ):
                yield
        finally:
            self._frame = None
            frame.leave()
            self._count += 1

    @property
    def active(self) -> bool:
        return self._frame is not None

    def mark(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checkpoint:
        """What the region says of the value that an operator is about to compute."""
        assert self._frame is not None  # or there is no region
        self._frame.read((*args, *kwargs.values()))
        if self._policy is None:
            return Checkpoint(self._count, Mark.PREFER_RECOMPUTE)
        context = SelectiveCheckpointContext(is_recompute=False)
        answer = self._policy(context, func, *args, **kwargs)
        if isinstance(answer, bool):
            answer = CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
        return Checkpoint(self._count, MARKS[answer])
