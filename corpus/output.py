"""Compare the output of two runs of a program.

Invariant: words must be equal; a number may differ by one in its last printed digit, or by the tolerance in
the program's header.
"""

import math
import re
from dataclasses import dataclass
from itertools import zip_longest

__all__ = ["Difference", "compare_output"]

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\b(?:nan|inf)\b")


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two outputs."""

    line: int = 0
    """The number of the first line that differs, from 1; 0 if all are equal."""
    text: str = ""
    """Both versions of that line."""
    relative: float = 0.0
    """The largest relative difference of two numbers that are not equal; infinite for different words."""

    @property
    def equal(self) -> bool:
        return not self.line


def compare_output(ours: tuple[str, ...], theirs: tuple[str, ...], tolerance: float | None) -> Difference:
    """Return the first line that differs, and the largest difference of all numbers."""
    first, text, largest = 0, "", 0.0
    for number, (line, reference) in enumerate(zip_longest(ours, theirs), start=1):
        difference = _line(line, reference, tolerance)
        if difference and not first:
            first, text = number, f"{_shown(line)} instead of {_shown(reference)}"
        largest = max(largest, difference)
    return Difference(first, text, largest)


def _shown(line: str | None) -> str:
    return "no line" if line is None else f"`{line}`"


def _line(line: str | None, reference: str | None, tolerance: float | None) -> float:
    """Return the difference; 0 for lines that count as equal."""
    if line is None or reference is None or _NUMBER.split(line) != _NUMBER.split(reference):
        return math.inf
    pairs = zip(_NUMBER.findall(line), _NUMBER.findall(reference), strict=True)
    return max((_number(a, b, tolerance or 0.0) for a, b in pairs), default=0.0)


def _number(text: str, reference: str, tolerance: float) -> float:
    a, b = float(text), float(reference)
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    relative = abs(a - b) / max(abs(a), abs(b))
    units = [unit for unit in (_last_digit(text), _last_digit(reference)) if unit is not None]
    allowed = max(min(units, default=0.0), tolerance * abs(b))
    return 0.0 if abs(a - b) <= allowed * (1 + 1e-6) else relative


def _last_digit(text: str) -> float | None:
    """Return the value of one in the last digit; None for a whole number, which is exact."""
    digits, _, exponent = text.lower().partition("e")
    _, point, decimals = digits.partition(".")
    if not point and not exponent:
        return None
    return 10.0 ** (int(exponent or 0) - len(decimals))
