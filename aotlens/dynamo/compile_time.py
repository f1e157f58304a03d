"""Where the wall time of compiling goes: every moment belongs to one phase, the innermost that runs.

Invariant: the phases of a thread nest; one that an exception left open is closed with the one around it.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass

__all__ = ["DYNAMO", "FIRST_RUN", "OTHER", "Clock"]

DYNAMO, GUARDS, BACKEND, AOT = "Dynamo", "guards", "backend", "AOT"
INDUCTOR, KERNELS, LOADING = "Inductor", "C++ and Triton", "loading code"
FIRST_RUN = "first run"
OTHER = "other"

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
"""How torch's names of events begin, and the phase that they belong to; the first that fits.

An event of another name belongs to the phase around it.
"""


@dataclass(slots=True)
class _Open:
    event: str
    phase: str
    compile_id: str


class Clock:
    """Mutable: filled while the script runs."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        """By compilation and phase."""
        self._threads = threading.local()

    @property
    def by_phase(self) -> dict[str, float]:
        """Seconds of each phase, the longest first."""
        totals: dict[str, float] = defaultdict(float)
        for (_, phase), seconds in self.seconds.items():
            totals[phase] += seconds
        return dict(sorted(totals.items(), key=lambda row: -row[1]))

    def of_compilation(self, compile_id: str) -> dict[str, float]:
        """Seconds of one compilation by phase."""
        return {
            phase: seconds
            for (compilation, phase), seconds in self.seconds.items()
            if compilation == compile_id
        }

    def begin(self, event: str, compile_id: str = "", phase: str | None = None) -> None:
        """Enter a phase; without one, the phase that the event's name stands for."""
        stack = self._lap()
        outer = stack[-1] if stack else None
        phase = phase or _phase(event) or (outer.phase if outer else OTHER)
        stack.append(_Open(event, phase, compile_id or (outer.compile_id if outer else "")))

    def end(self, event: str) -> None:
        """Leave a phase, and those within it that nobody ended."""
        stack = self._lap()
        index = next((index for index in reversed(range(len(stack))) if stack[index].event == event), None)
        if index is not None:
            del stack[index:]

    def rename(self, event: str, phase: str) -> None:
        """Say which phase it is that an event has begun."""
        stack = self._lap()
        if stack and stack[-1].event == event:
            stack[-1].phase = phase

    def tracing_seconds(self) -> float:
        """What Dynamo spent on this thread's compilation until now, apart from guards and the backend."""
        stack = self._lap()
        return self.seconds[stack[-1].compile_id, DYNAMO] if stack else 0.0

    def _lap(self) -> list[_Open]:
        """The phases of this thread, the time until now charged to the innermost."""
        now = time.perf_counter()
        threads = self._threads
        stack: list[_Open] | None = getattr(threads, "stack", None)
        if stack is None:
            stack = threads.stack = []
        elif stack:
            self.seconds[stack[-1].compile_id, stack[-1].phase] += now - threads.mark
        threads.mark = now
        return stack


_known: dict[str, str | None] = {}


def _phase(event: str) -> str | None:
    if event not in _known:
        _known[event] = next((phase for start, phase in PHASES if event.startswith(start)), None)
    return _known[event]
