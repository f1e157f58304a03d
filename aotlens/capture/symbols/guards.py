"""What a recording assumed of symbolic sizes: each guard with the user's line.

Invariant: torch's shape environment decides and stores its guards as usual; only their origins are added.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aotlens.capture.graph import Recording
from aotlens.ir.origin import NO_ORIGIN, Origin


class GuardLog(list[Any]):
    """A shape environment's guards, with the origins of those added during a recording."""

    def __init__(self, guards: list[Any]) -> None:
        super().__init__(guards)
        self.origins: dict[int, Origin] = dict(guards.origins) if isinstance(guards, GuardLog) else {}
        """By position; a guard from before the recording has none."""
        self.recording: weakref.ref[Recording] | None = None
        """The recording that provides the origins; one of Dynamo's environments may outlive it."""
        self.runs_forward = False

    def append(self, guard: Any) -> None:
        recording = self.recording() if self.recording is not None else None
        if recording is not None:
            if recording.in_backward:
                self.origins[len(self)] = recording.origin
            elif self.runs_forward:
                op = recording.origin.op if recording.is_inside_operator else ""
                self.origins[len(self)] = Origin(recording.current_frames(), op)
            else:  # one of our stages asked, and no line: without an entry it would count as Dynamo's
                self.origins[len(self)] = Origin(NO_ORIGIN, "")
        super().append(guard)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self.origins = {position: origin for position, origin in self.origins.items() if position < len(self)}


@contextmanager
def recording_guards(recording: Recording) -> Iterator[None]:
    """Record the origins of guards in the block; later guards get one only in the backward."""
    environment: Any = recording.fake_mode.shape_env
    if environment is None:
        yield
        return
    log = GuardLog(environment.guards)
    log.recording = weakref.ref(recording)
    environment.guards = log
    log.runs_forward = True
    try:
        yield
    finally:
        log.runs_forward = False
