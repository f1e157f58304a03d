"""Where recorded nodes come from.

Invariant: a node of the forward names the user's expression that ran it, or the stage of ours that did; one
of the backward names the forward operator that it differentiates.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from aotlens.capture.provenance.frames import user_frames
from aotlens.ir.origin import NO_ORIGIN, Checkpoint, Frames, Origin
from aotlens.ir.program import op_name
from aotlens.torch_api.autograd import current_autograd_node, next_sequence_number


class Origins:
    """The origins of one recording's nodes."""

    def __init__(self, boundary: CodeType, caller: Origin | None = None) -> None:
        self.boundary = boundary
        """Of the function that calls the user's: frames outside it are not looked at."""
        self.known_frames: Frames | None = None
        """Set by a frontend that knows the place itself; None walks the stack."""
        self.called_at = NO_ORIGIN
        """Of what runs where no code of the user's does: see `Subject.called_at`."""
        self.in_user_backward = False
        """Whether the user's code called the operator of a backward whose origin was asked for last."""
        self._in_user_code = False
        self._caller = caller
        """Of the higher-order operator whose body is recorded; None for the user's function itself."""
        self._stage: tuple[str, str] | None = None
        """The stage of ours that runs operators now, and why; None for the user's code."""
        self._sequence: list[int] = []
        """The number of the newest autograd node when each operator of the forward ran, ascending."""
        self._by_sequence: list[Origin] = []

    @contextmanager
    def in_stage(self, stage: str, reason: str) -> Iterator[None]:
        """Within the block, a stage of ours runs operators on the recorded tensors, seen by autograd."""
        self._stage = (stage, reason)
        try:
            yield
        finally:
            self._stage = None

    @contextmanager
    def user_code(self) -> Iterator[None]:
        """Within the block, what runs of a backward is the user's code, as a graph that Dynamo made of it."""
        before, self._in_user_code = self._in_user_code, True
        try:
            yield
        finally:
            self._in_user_code = before

    def current_frames(self) -> Frames:
        """The user's expression that runs; where none does, the one that called what runs."""
        frames = self._stack_frames()
        return frames if frames.frames or frames.known_spans else self.called_at

    def _stack_frames(self) -> Frames:
        return self.known_frames or user_frames(self.boundary)

    def origin_of(self, func: Any, in_backward: bool, checkpoint: Checkpoint | None = None) -> Origin:
        """The origin of what an operator records that is about to run."""
        if self._caller is not None:
            return _in_subgraph(func, self._stack_frames(), self._caller)
        if in_backward:
            return self._in_backward(func, self._stack_frames())
        origin = Origin(self.current_frames(), op_name(func), checkpoint=checkpoint)
        if self._stage is not None:
            origin = Origin(NO_ORIGIN, op_name(func), stage=self._stage[0], reason=self._stage[1])
        number = next_sequence_number() - 1
        if not self._sequence or number > self._sequence[-1]:
            self._sequence.append(number)
            self._by_sequence.append(origin)
        return origin

    def _in_backward(self, func: Any, frames: Frames) -> Origin:
        self.in_user_backward = bool(frames.frames) or self._in_user_code
        node = current_autograd_node()
        forward = self.forward_of(node) if node is not None else None
        if forward is not None and not frames.frames:
            frames = forward.location
        return Origin(frames, op_name(func), backward=True, differentiates=forward)

    def forward_of(self, node: Any) -> Origin | None:
        """The forward operator that an autograd node differentiates: the last one not numbered after it."""
        position = bisect_right(self._sequence, node._sequence_nr())
        return self._by_sequence[position - 1] if position else None


def _in_subgraph(func: Any, frames: Frames, caller: Origin) -> Origin:
    if not frames.frames and not frames.known_spans:
        frames = caller.location
    return Origin(frames, op_name(func), caller.backward, differentiates=caller.differentiates)
