"""Signals: they leave a clean terminal and no process."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
"""The signals of terminals, shells and service managers; Windows has only some of them."""


def exit_code(number: int) -> int:
    """Return the exit code that shells report for a command that a signal ended."""
    return 128 + number


@contextmanager
def ended_by_signals(end: Callable[[int], None]) -> Iterator[None]:
    """While the running loop is in the block, a signal calls `end` with its number on that loop."""
    loop = asyncio.get_running_loop()
    for number in ENDING:
        with suppress(NotImplementedError):  # Windows' loops have no signal handlers
            loop.add_signal_handler(number, end, int(number))
    try:
        yield
    finally:
        for number in ENDING:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)


@contextmanager
def leaving_interrupts_alone() -> Iterator[None]:
    """While another program has the terminal, Ctrl-C reaches only that program; it inherits the default
    handling."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, *quits())]
    # The loop hears of a signal through a descriptor, whatever handler Python has: it must not listen.
    descriptor = signal.set_wakeup_fd(-1)
    for number, _ in before:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)


def quits() -> tuple[int, ...]:
    return (signal.SIGQUIT,) if os.name == "posix" else ()
