"""Find where the user's code was when its process was stopped, from a `faulthandler` dump.

Invariant: only frames of the user's own files are named; torch, the standard library and aotlens are not.
"""

import linecache
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_PACKAGE = str(Path(__file__).absolute().parents[1])
_LIBRARIES = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib") if name
)


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in `{self.function}`"

    def quoted(self) -> str:
        """Return the frame as in a traceback, with its source line if the file can be read."""
        text = linecache.getline(self.file, self.line).strip()
        source = f"    {text}\n" if text else ""
        return f'  File "{self.file}", line {self.line}, in {self.function}\n{source}'


def is_user_file(file: str) -> bool:
    """Return True for the user's own code: not a library's, not ours, not generated."""
    if file.startswith("<") or "/site-packages/" in file or "/dist-packages/" in file:
        return False
    return not file.startswith((_PACKAGE, *_LIBRARIES))


def user_frames(dump: str, script: str) -> tuple[Frame, ...]:
    """Return the user's frames of a dump from the script's entry on, innermost first like faulthandler."""
    linecache.checkcache()  # the user edits their files while this process lives
    frames = [Frame(m["file"], int(m["line"]), m["function"]) for m in _FRAME.finditer(dump)]
    entry = max((index for index, frame in enumerate(frames) if frame.file == script), default=len(frames))
    return tuple(frame for frame in frames[: entry + 1] if frame.file == script or is_user_file(frame.file))


def traceback_text(frames: tuple[Frame, ...]) -> str:
    """Return the frames as Python shows them, innermost last; empty for none."""
    if not frames:
        return ""
    return "Traceback (most recent call last):\n" + "".join(frame.quoted() for frame in reversed(frames))
