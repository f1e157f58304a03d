"""The lines of a traced text after edits.

Invariant: a line counts as traced only while its text is the traced one, between its old neighbours; so no
typing, deleting or undoing makes a stale fact look fresh.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

from lsp_server.text.document import LineEdit

LONGEST_DIFF = 600
"""Lines on either side beyond which two texts are compared at their ends only: difflib is quadratic."""


class LineMap:
    """Maps the lines of a traced text to the lines of the current text, both 0-based."""

    def __init__(self, traced: Sequence[str], current: Sequence[str]) -> None:
        self._traced = tuple(traced)
        self._current = list(current)
        self._origins = _origins_by_text(self._traced, self._current)
        self._forward: dict[int, int] | None = None
        self.is_identity = self._is_as_traced()
        """True if the text is exactly the traced one."""

    @property
    def traced(self) -> tuple[str, ...]:
        return self._traced

    def edit(self, edit: LineEdit) -> None:
        """Follow one change of the document."""
        head, tail = _common_ends(edit)
        old, new = len(edit.old) - head - tail, len(edit.new) - head - tail
        first = edit.first + head
        own = self._origins[first : first + old]
        # A block of the same height keeps its descent, so that undoing a change inside it shows again.
        if old != new or None in own:
            block = edit.new[head : len(edit.new) - tail]
            origins = self._descent(first, first + old, block)
            self._origins[first : first + old] = origins if old != new else _merged(origins, own)
        self._current[edit.first : edit.first + len(edit.old)] = edit.new
        self._forward = None
        self.is_identity = self._is_as_traced()
        if self.is_identity:
            self._origins = list(range(len(self._traced)))

    def _descent(self, first: int, end: int, block: Sequence[str]) -> list[int | None]:
        """Return the origins of the lines that replace `first..end`: the equal lines that were traced
        there."""
        above = (origin for origin in reversed(self._origins[:first]) if origin is not None)
        below = (origin for origin in self._origins[end:] if origin is not None)
        start = next(above, -1) + 1
        gap = self._traced[start : next(below, len(self._traced))]
        return [None if origin is None else start + origin for origin in _origins_by_text(gap, list(block))]

    def _is_as_traced(self) -> bool:
        return len(self._current) == len(self._traced) and tuple(self._current) == self._traced

    def to_current(self, line: int) -> int | None:
        """Return the current line of traced line `line`; None when it was changed or removed."""
        if self._forward is None:
            self._forward = {
                origin: number
                for number, origin in enumerate(self._origins)
                if origin is not None and self._current[number] == self._traced[origin]
            }
        return self._forward.get(line)

    def to_traced(self, line: int) -> int | None:
        """Return the traced line of current line `line`; None for a changed or new line."""
        if not 0 <= line < len(self._origins):
            return None
        origin = self._origins[line]
        return origin if origin is not None and self._current[line] == self._traced[origin] else None

    def block_to_current(self, first: int, last: int) -> int | None:
        """Return the current first line of the traced lines `first..last`; None unless all are unchanged and
        together."""
        start = self.to_current(first)
        if start is None:
            return None
        together = all(self.to_current(first + step) == start + step for step in range(1, last - first + 1))
        return start if together else None


def _merged(origins: list[int | None], own: list[int | None]) -> list[int | None]:
    """Return `origins`, completed by the known ones as far as the order of the lines allows."""
    following: list[int | None] = []
    for origin in reversed(origins):
        last = following[-1] if following else None
        following.append(last if origin is None else origin)
    merged, low = list(origins), -1
    for index, (origin, high) in enumerate(zip(own, reversed(following), strict=True)):
        if merged[index] is None and origin is not None and low < origin and (high is None or origin < high):
            merged[index] = origin
        low = low if merged[index] is None else merged[index] or 0
    return merged


def _common_ends(edit: LineEdit) -> tuple[int, int]:
    """Return how many lines at the head and at the tail the edit left unchanged."""
    most = min(len(edit.old), len(edit.new))
    if edit.keeps_tail:
        tail = _common(edit.old[::-1], edit.new[::-1], most)
        return _common(edit.old, edit.new, most - tail), tail
    head = _common(edit.old, edit.new, most)
    return head, _common(edit.old[::-1], edit.new[::-1], most - head)


def _common(left: Sequence[str], right: Sequence[str], most: int) -> int:
    for index in range(most):
        if left[index] != right[index]:
            return index
    return most


def _origins_by_text(traced: Sequence[str], current: Sequence[str]) -> list[int | None]:
    """Return the origin of each current line, from the two texts alone."""
    edit = LineEdit(0, tuple(traced), tuple(current))
    head, tail = _common_ends(edit)
    middle: list[int | None] = [None] * (len(current) - head - tail)
    old, new = traced[head : len(traced) - tail], current[head : len(current) - tail]
    if max(len(old), len(new)) <= LONGEST_DIFF:
        for left, right, size in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            middle[right : right + size] = [head + left + step for step in range(size)]
    end = range(len(traced) - tail, len(traced))
    return [*range(head), *middle, *end]
