"""What a program of the list does otherwise in one of the ways, and why: known or symbolic sizes, a backend.

Promise: a row of `EXCEPTIONS` stands for a refusal by name, one of `ROUNDED` for values that differ by a
rounding.  What is refused in every way says so beside the program (`refused`, `later`).
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from aotlens.verify.compare import Difference


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


@dataclass(frozen=True, slots=True)
class RoundedThere:
    """Why values differ from eager by a rounding with Inductor, and the programs that show it."""

    reason: str
    relative: float
    """Largest error, as a part of the largest value."""
    programs: tuple[str, ...]

    def covers(self, program: str, backend: str, difference: Difference) -> bool:
        return (
            backend == "inductor"
            and difference.kind in ("value", "gradient")
            and difference.max_rel is not None
            and difference.max_rel <= self.relative
            and any(fnmatchcase(program, pattern) for pattern in self.programs)
        )


ROUNDED = (
    RoundedThere(
        "Inductor keeps what lies between two bfloat16 values in float32",
        0.01,
        ("modes/autocast_to_another_type", "modes/TwiceTheWeight"),
    ),
)
