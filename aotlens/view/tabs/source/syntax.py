"""Python's syntax in a handful of kinds, by line.

Invariant: pygments is loaded by the first text that is coloured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pygments loads for as long as the app's first screen takes to draw
    from aotlens.view.tabs.source.tokens import Run

WHOLE = 4000
"""Lines up to which a text is lexed from its start; longer ones are lexed line by line as they are shown,
where a string over several lines loses its colour."""

Colouring = Callable[[int, str], Sequence["Run"]]
"""Returns the runs of a 1-based line."""


def plain(number: int, line: str) -> Sequence[Run]:
    """No colours."""
    return ()


def python(lines: Sequence[str]) -> Colouring:
    """Return the colouring of a Python text."""
    from aotlens.view.tabs.source.tokens import runs  # with pygments

    if len(lines) > WHOLE:
        known: dict[int, Sequence[Run]] = {}

        def lazily(number: int, line: str) -> Sequence[Run]:
            if number not in known:
                known[number] = tuple(runs(line))
            return known[number]

        return lazily
    text = Lexed(lines, runs("\n".join(lines)))
    return lambda number, line: text.runs_of(number)


class Lexed:
    """The runs of a text, which is lexed from its start as far as it is shown."""

    def __init__(self, lines: Sequence[str], runs: Iterable[Run]) -> None:
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self._runs = iter(runs)
        self._by_line: dict[int, list[Run]] = {}
        self._reached = 0
        """The line of the last run; those before it have all of theirs."""

    def runs_of(self, number: int) -> Sequence[Run]:
        """Return the runs of a 1-based line."""
        while self._reached <= number and (run := next(self._runs, None)) is not None:
            self._add(*run)
        return self._by_line.get(number, ())

    def _add(self, start: int, end: int, kind: str) -> None:
        """Cut a run at the ends of lines."""
        starts = self._starts
        self._reached = bisect_right(starts, start)
        for number in range(self._reached, bisect_right(starts, end - 1) + 1):
            base, edge = starts[number - 1], starts[number] - 1
            if max(start, base) < min(end, edge):
                self._by_line.setdefault(number, []).append(
                    (max(start, base) - base, min(end, edge) - base, kind)
                )
