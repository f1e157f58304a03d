"""The time of each stage, and the lock that lets one stage run at a time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aotlens.observe import running_stage
from aotlens.torch_api.modes import hidden_from_user_modes
from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import COMPILE

COMPILING = threading.RLock()
"""One stage runs at a time: torch's modes and Inductor have process-wide state."""


class ModuleSwapCounter:
    """Counts how often a module's tensors were replaced by the recording's, and restored.

    A thread that read them meanwhile can tell: `ended` before the read differs from `begun` after it.
    """

    begun = 0
    ended = 0


@contextmanager
def swapping_tensors() -> Iterator[None]:
    """Within the context, a module may hold the recording's tensors; other threads that call it wait."""
    with COMPILING:
        ModuleSwapCounter.begun += 1
        try:
            yield
        finally:
            ModuleSwapCounter.ended += 1


class Clock:
    """Announces each stage and measures its time."""

    def __init__(self) -> None:
        self.timings_ms: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run a stage; a repeated name adds to its time."""
        with COMPILING, hidden_from_user_modes(name), patched(COMPILE), running_stage(name):
            started = time.perf_counter()
            try:
                yield
            finally:
                elapsed = (time.perf_counter() - started) * 1000
                self.timings_ms[name] = self.timings_ms.get(name, 0.0) + elapsed
