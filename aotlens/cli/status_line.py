"""One line on the terminal that shows the current operation and disappears before other output.

Invariant: the cursor never moves.  The line follows whatever the script has printed, is erased before the
script's next output and at the end, and only a terminal ever receives it.
"""

import io
import os
import sys
import threading
import time
from types import TracebackType
from typing import Any, TextIO

from aotlens.view.quantities import clock

__all__ = ["StatusLine"]

DELAY_S = 0.5
"""Shorter operations are not shown."""
REFRESH_S = 0.2

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_ERASE = "\x1b[K"
"""From the cursor to the end of the line."""


class StatusLine:
    """The current text, and whether it is on the screen; mutable.  Used as a context."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._changed = threading.Event()
        self._text: str | None = None
        self._since = 0.0
        self._drawn = False
        self._closed = False
        self._guarded: list[io.TextIOWrapper] = []
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._refresh, name="aotlens status line", daemon=True)

    def __enter__(self) -> "StatusLine":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()
        self._closed = True
        self._changed.set()
        self._thread.join()

    def show(self, text: str) -> None:
        """Show this text from now on; the seconds count from the first of several texts."""
        with self._lock:
            if self._text is None:
                self._since = time.monotonic()
                self._guard()
            self._text = text
        self._changed.set()

    def hide(self) -> None:
        """Erase the line; the script continues."""
        with self._lock:
            self._text = None
            self._erase()
            for stream in self._guarded:
                vars(stream).pop("write", None)
            self._guarded.clear()

    def _refresh(self) -> None:
        while not self._closed:
            with self._lock:
                waits = self._text is None
                if self._text is not None and time.monotonic() - self._since >= DELAY_S:
                    self._draw(f"{self._text} · {clock(time.monotonic() - self._since)}")
            self._changed.wait(None if waits else REFRESH_S)
            self._changed.clear()

    def _draw(self, text: str) -> None:
        self._write(f"{_SAVE}{_NO_WRAP}{text}{_ERASE}{_WRAP}{_RESTORE}")
        self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            self._write(_ERASE)
            self._drawn = False

    def _write(self, text: str) -> None:
        """Write without Python's buffers, which may hold a part of the script's next line."""
        os.write(self._stream.fileno(), text.encode())

    def _guard(self) -> None:
        """Erase the line before Python prints anything else: warnings, the script's other threads."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and "write" not in vars(stream):
                vars(stream)["write"] = self._erasing(stream.write)
                self._guarded.append(stream)

    def _erasing(self, write: Any) -> Any:
        def erase_and_write(text: str) -> int:
            if os.getpid() != self._process:  # a child that was forked meanwhile has no line
                return int(write(text))
            with self._lock:
                self._erase()
                return int(write(text))

        return erase_and_write
