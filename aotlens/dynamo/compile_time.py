"""Where the wall time of compiling goes: every moment counts for the innermost phase that runs.

Invariant: the phases of a thread nest; a phase that an exception left open ends with the one around it.  A
moment counts once: a thread that only builds code, while another one compiles and waits, does not count.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

__all__ = ["CODE_PHASES", "DYNAMO", "FIRST_RUN", "OTHER", "PHASES", "Clock"]

DYNAMO, GUARDS, BACKEND, AOT = "Dynamo", "guards", "backend", "AOT"
INDUCTOR, KERNELS, LOADING = "Inductor", "C++ and Triton", "loading code"
FIRST_RUN = "first run"
OTHER = "other"
"""The phase of an event that no prefix names, with no phase around it."""
CODE_PHASES = (INDUCTOR, KERNELS, LOADING)
"""The phases that generate, build and load code."""

PHASES: tuple[tuple[str, str], ...] = (
    ("build_guards", GUARDS),
    ("entire_frame_compile", DYNAMO),
    ("compile_attempt", DYNAMO),
    ("bytecode_tracing", DYNAMO),
    ("dynamo", DYNAMO),
    ("gc", DYNAMO),
    ("insert_deferred", DYNAMO),
    ("backend_compile", BACKEND),
    ("create_aot_dispatcher", AOT),
    ("aot_", AOT),
    ("AOTAutogradCache", AOT),
    ("min_cut", AOT),
    ("entire_backward_compile", AOT),
    ("backward._backward_impl", AOT),
    ("compile_file", KERNELS),
    ("async_compile.wait", KERNELS),
    ("CachingAutotuner", KERNELS),
    ("triton", KERNELS),
    ("TritonBundler", KERNELS),
    ("reload_kernel", KERNELS),
    ("benchmark", KERNELS),
    ("PyCodeCache", LOADING),
    ("inductor", INDUCTOR),
    ("fx_", INDUCTOR),
    ("compile_fx", INDUCTOR),
    ("code_gen", INDUCTOR),
    ("GraphLowering", INDUCTOR),
    ("Scheduler", INDUCTOR),
    ("PythonWrapperCodegen", INDUCTOR),
    ("_recursive", INDUCTOR),
    ("pass.", INDUCTOR),
    ("additional_fake", INDUCTOR),
    ("CacheBase", INDUCTOR),
)
"""Prefixes of torch's event names, and the phase of each; the first match counts.

Other events count for the phase around them.
"""


@dataclass(slots=True)
class _Open:
    """A phase that has begun."""

    event: str
    phase: str
    compile_id: str


class _Thread(threading.local):
    """The phases of one thread; mutable."""

    def __init__(self) -> None:
        self.stack: list[_Open] = []
        self.mark = 0.0
        """When the time was added last."""
        self.counts = True
        """False for a thread that builds code for another one."""


class Clock:
    """Mutable: filled while the script runs."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        """Seconds by compilation and phase."""
        self._thread = _Thread()
        self._busy: set[int] = set()
        """The threads that count and have an open phase."""

    @property
    def by_phase(self) -> dict[str, float]:
        """Seconds of each phase, the longest first."""
        totals: dict[str, float] = defaultdict(float)
        for (_, phase), seconds in self.seconds.items():
            totals[phase] += seconds
        return dict(sorted(totals.items(), key=lambda row: -row[1]))

    def of_compilation(self, compile_id: str) -> dict[str, float]:
        """Return the seconds of one compilation by phase."""
        return {
            phase: seconds
            for (compilation, phase), seconds in self.seconds.items()
            if compilation == compile_id
        }

    def begin(self, event: str, compile_id: str = "", phase: str | None = None) -> None:
        """Enter a phase; by default the one to which the event's name belongs."""
        stack = self._lap()
        outer = stack[-1] if stack else None
        phase = phase or _phase(event) or (outer.phase if outer else OTHER)
        if outer is None:
            self._thread.counts = phase not in CODE_PHASES or not self._busy
            if self._thread.counts:
                self._busy.add(threading.get_ident())
        stack.append(_Open(event, phase, compile_id or (outer.compile_id if outer else "")))

    def end(self, event: str) -> None:
        """Leave a phase, and phases within it that did not end."""
        stack = self._lap()
        index = next((index for index in reversed(range(len(stack))) if stack[index].event == event), None)
        if index is not None:
            del stack[index:]
        if not stack:
            self._busy.discard(threading.get_ident())

    def rename(self, event: str, phase: str) -> None:
        """Set the phase of the event that began last."""
        stack = self._lap()
        if stack and stack[-1].event == event:
            stack[-1].phase = phase

    def tracing_seconds(self) -> float:
        """Return the time that Dynamo has spent on this thread's compilation, without guards and backend."""
        stack = self._lap()
        return self.seconds[stack[-1].compile_id, DYNAMO] if stack else 0.0

    def _lap(self) -> list[_Open]:
        """Add the time since the last call to the innermost phase; return this thread's phases."""
        now, thread = time.perf_counter(), self._thread
        stack = thread.stack
        if stack and thread.counts:
            self.seconds[stack[-1].compile_id, stack[-1].phase] += now - thread.mark
        thread.mark = now
        return stack


@cache
def _phase(event: str) -> str | None:
    """Return the phase to which an event of torch's belongs; None if it counts for the phase around it."""
    return next((phase for start, phase in PHASES if event.startswith(start)), None)
