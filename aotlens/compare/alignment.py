"""The longest common subsequence of two sequences (E. W. Myers, An O(ND) Difference Algorithm, 1986).

Invariant: pairs rise on both sides, and no longer list of pairs exists while the sequences differ in at most
`_MOST_EDITS` places; beyond, `difflib` finds one that is good enough.
"""

import difflib
from collections.abc import Hashable, Sequence

__all__ = ["aligned"]

_MOST_EDITS = 600

Pairs = list[tuple[int, int]]


def aligned(old: Sequence[Hashable], new: Sequence[Hashable]) -> Pairs:
    """Index pairs of equal elements, in order."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    inner = _inner(old[start : len(old) - end], new[start : len(new) - end])
    head = [(index, index) for index in range(start)]
    tail = [(len(old) - end + index, len(new) - end + index) for index in range(end)]
    return [*head, *((start + old_index, start + new_index) for old_index, new_index in inner), *tail]


def _inner(old: Sequence[Hashable], new: Sequence[Hashable]) -> Pairs:
    if not old or not new:
        return []
    traces = _traces(old, new)
    if traces is not None:
        return _walked_back(traces, old, new)
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(block.a + offset, block.b + offset) for block in blocks for offset in range(block.size)]


def _traces(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[dict[int, int]] | None:
    """Of each number of edits: how far one gets on each diagonal; None for too many edits."""
    furthest = {1: 0}  # so that the first step, without an edit, starts at 0 on diagonal 0
    traces: list[dict[int, int]] = []
    for edits in range(min(len(old) + len(new), _MOST_EDITS) + 1):
        traces.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            position = _step(furthest, diagonal, edits)
            while (
                position < len(old)
                and position - diagonal < len(new)
                and old[position] == new[position - diagonal]
            ):
                position += 1
            furthest[diagonal] = position
            if position >= len(old) and position - diagonal >= len(new):
                return traces
    return None


def _step(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Return the end of one edit on a diagonal: an insertion keeps the position in `old`, a removal advances
    it."""
    if _is_insertion(furthest, diagonal, edits):
        return furthest[diagonal + 1]
    return furthest[diagonal - 1] + 1


def _is_insertion(furthest: dict[int, int], diagonal: int, edits: int) -> bool:
    """Return True if the last edit that leads furthest on a diagonal inserts an element, False for a removal.

    Only an insertion leads to the lowest diagonal, and only a removal to the highest.
    """
    if diagonal in (-edits, edits):
        return diagonal == -edits
    return furthest[diagonal - 1] < furthest[diagonal + 1]


def _walked_back(traces: list[dict[int, int]], old: Sequence[Hashable], new: Sequence[Hashable]) -> Pairs:
    """Return the pairs on the way that `_traces` found, which is known from its end only."""
    pairs: Pairs = []
    old_index, new_index = len(old), len(new)
    for edits in range(len(traces) - 1, -1, -1):
        diagonal = old_index - new_index
        start = _step(traces[edits], diagonal, edits)
        while old_index > start and new_index > start - diagonal:
            old_index, new_index = old_index - 1, new_index - 1
            pairs.append((old_index, new_index))
        if edits and _is_insertion(traces[edits], diagonal, edits):
            new_index -= 1
        elif edits:
            old_index -= 1
    pairs.reverse()
    return pairs
