"""What a program of the list cannot do in one of the ways, and why: known or symbolic sizes, a backend.

Promise: a row stands for a refusal by name, never for a difference from eager.  What is refused in every way
says so beside the program (`refused`, `later`).
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal


@dataclass(frozen=True, slots=True)
class RefusedThere:
    """One reason, and the programs that it holds for."""

    reason: str
    message: str
    """A phrase of the refusal."""
    programs: tuple[str, ...]
    """Names or patterns."""
    backend: Literal["eager", "inductor"] | None = None
    """None: with either."""
    dynamic: bool | None = None
    """None: under known and symbolic sizes."""

    def covers(self, program: str, backend: str, dynamic: bool, message: str) -> bool:
        return (
            self.backend in (None, backend)
            and self.dynamic in (None, dynamic)
            and self.message in message
            and any(fnmatchcase(program, pattern) for pattern in self.programs)
        )


EXCEPTIONS: tuple[RefusedThere, ...] = ()
