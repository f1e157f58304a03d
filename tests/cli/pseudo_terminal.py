"""Runs a command whose stdout and stderr are a terminal, and divides what it wrote from its status line."""

import os
import pty
import re
from dataclasses import dataclass
from pathlib import Path

from tests.command import LIMIT_S, environment
from tests.forked import start

DRAWN = re.compile(r"\x1b7\x1b\[\?7l(?P<text>.*?)\x1b\[K\x1b\[\?7h\x1b8", re.DOTALL)
ERASED = "\x1b[K"


@dataclass(frozen=True, slots=True)
class Screen:
    """What a terminal was sent."""

    code: int
    sent: str

    @property
    def status(self) -> list[str]:
        """Every text of the status line."""
        return [match["text"] for match in DRAWN.finditer(self.sent)]

    @property
    def printed(self) -> str:
        """All but the status line."""
        return DRAWN.sub("", self.sent).replace(ERASED, "").replace("\r\n", "\n")

    @property
    def overwritten(self) -> list[str]:
        """What was printed while the status line was on the screen, and what it left there."""
        parts = re.split(rf"({DRAWN.pattern.replace('?P<text>', '?:')}|\x1b\[K)", self.sent, flags=re.DOTALL)
        is_drawn, parts_after = False, []
        for part in parts:
            if part == ERASED or DRAWN.fullmatch(part):
                is_drawn = part != ERASED
            elif part and is_drawn:
                parts_after.append(part)
        return [*parts_after, *(["the line is still there"] if is_drawn else [])]


def on_terminal(*words: str | Path, cwd: Path | None = None) -> Screen:
    """`python WORDS…` on a terminal of its own, in a fork of a process that has torch loaded."""
    main, side = pty.openpty()
    folder = None if cwd is None else str(cwd)
    variables = environment() | {"TERM": "xterm"}
    child = start([str(word) for word in words], (side, side, side), cwd=folder, env=variables)
    os.close(side)
    chunks = []
    try:
        while chunk := os.read(main, 65536):
            chunks.append(chunk)
    except OSError:  # Linux answers so once the other side is closed
        pass
    finally:
        os.close(main)
    return Screen(child.wait(LIMIT_S), b"".join(chunks).decode())
