"""A terminal that records when it is written to, so that a paint includes everything up to the bytes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from textual import events
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size

from benchmarks.pseudo_terminal import COLUMNS, LINES

SIZE = Size(COLUMNS, LINES)
QUIET_S = 0.12
"""A paint is over after this time without output; the wait itself is not counted."""
PATIENCE_S = 30.0


class NotingDriver(HeadlessDriver):
    """A driver that is not headless for Textual, which otherwise draws nothing."""

    first_write_s = 0.0
    last_write_s = 0.0

    @property
    def is_headless(self) -> bool:
        return False

    def _get_terminal_size(self) -> tuple[int, int]:
        return SIZE.width, SIZE.height

    def write(self, data: str) -> None:
        NotingDriver.last_write_s = time.perf_counter()
        NotingDriver.first_write_s = NotingDriver.first_write_s or NotingDriver.last_write_s


@dataclass(frozen=True, slots=True)
class Paint:
    """One action until the first paint that answers it, and until the last one that it causes."""

    answer_s: float
    wall_s: float
    cpu_s: float
    """Of this process: other programs and the wait for the next frame are not counted."""


async def painted(act: Callable[[], object]) -> Paint:
    """Perform the action, and wait until nothing more is painted."""
    began, spent = time.perf_counter(), time.process_time()
    NotingDriver.first_write_s = NotingDriver.last_write_s = 0.0
    act()
    while True:
        await asyncio.sleep(0.005)
        here, last = time.perf_counter(), NotingDriver.last_write_s
        if last and here - last > QUIET_S:
            return Paint(NotingDriver.first_write_s - began, last - began, time.process_time() - spent)
        if here - began > PATIENCE_S:
            raise RuntimeError(f"nothing was painted within {PATIENCE_S:.0f} s")


def press(app: App[int], key: str, character: str | None = None) -> Callable[[], object]:
    """Return a function that sends a key as a terminal does."""
    return lambda: app.post_message(events.Key(key, character if character is not None else key))
