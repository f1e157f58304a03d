"""Origins of recorded nodes.

Invariant: a node of the forward names the user's expression, or our stage, that ran it; a node of the
backward names the forward operator that it differentiates.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aotlens.capture.provenance.frames import user_frames
from aotlens.ir.origin import NO_ORIGIN, Checkpoint, Frames, Origin
from aotlens.ir.program import op_name
from aotlens.torch_api.autograd import current_autograd_node, next_sequence_number


class Origins:
    """Determines the origins of one recording's nodes."""

    def __init__(self, caller: Origin | None = None) -> None:
        self.known_frames: Frames | None = None
        """Set by a frontend that knows the source location; None walks the stack."""
        self.called_at = NO_ORIGIN
        """The frames for code outside the user's: see `Subject.called_at`."""
        self.in_user_backward = False
        """Whether user code called the last operator of a backward."""
        self._in_user_code = False
        self._caller = caller
        """Origin of the higher-order operator whose subgraph is recorded; None for the user's function."""
        self._stage: tuple[str, str] | None = None
        """Our stage that runs operators now, and the reason; None for the user's code."""
        self._sequence: list[int] = []
        """The sequence number of the newest autograd node at each forward operator, ascending."""
        self._by_sequence: list[Origin] = []

    @contextmanager
    def in_stage(self, stage: str, reason: str) -> Iterator[None]:
        """Attribute the operators in the block to one of our stages, while autograd records them."""
        self._stage = (stage, reason)
        try:
            yield
        finally:
            self._stage = None

    @contextmanager
    def user_code(self) -> Iterator[None]:
        """Treat what runs in the block of a backward as user code: a graph that Dynamo made of it."""
        before, self._in_user_code = self._in_user_code, True
        try:
            yield
        finally:
            self._in_user_code = before

    def current_frames(self) -> Frames:
        """Return the user's current frames; if there are none, those of the caller."""
        frames = self._stack_frames()
        return frames if frames.frames or frames.known_spans else self.called_at

    def _stack_frames(self) -> Frames:
        return self.known_frames or user_frames()

    def origin_of(self, func: Any, in_backward: bool, checkpoint: Checkpoint | None = None) -> Origin:
        """Return the origin of the operator that is about to run."""
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
        """Return the forward operator of an autograd node: the last one with a lower or equal number."""
        position = bisect_right(self._sequence, node._sequence_nr())
        return self._by_sequence[position - 1] if position else None


def _in_subgraph(func: Any, frames: Frames, caller: Origin) -> Origin:
    if not frames.frames and not frames.known_spans:
        frames = caller.location
    return Origin(frames, op_name(func), caller.backward, differentiates=caller.differentiates)
