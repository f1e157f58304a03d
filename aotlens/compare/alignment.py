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
    head = [(at, at) for at in range(start)]
    tail = [(len(old) - end + at, len(new) - end + at) for at in range(end)]
    return [*head, *((start + one, start + other) for one, other in inner), *tail]


def _inner(old: Sequence[Hashable], new: Sequence[Hashable]) -> Pairs:
    if not old or not new:
        return []
    traces = _traces(old, new)
    if traces is not None:
        return _walked_back(traces, old, new)
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(block.a + at, block.b + at) for block in blocks for at in range(block.size)]


def _traces(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[dict[int, int]] | None:
    """Of each number of edits: how far one gets on each diagonal; None for too many edits."""
    furthest = {1: 0}
    traces: list[dict[int, int]] = []
    for edits in range(min(len(old) + len(new), _MOST_EDITS) + 1):
        traces.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            at = _step(furthest, diagonal, edits)
            while at < len(old) and at - diagonal < len(new) and old[at] == new[at - diagonal]:
                at += 1
            furthest[diagonal] = at
            if at >= len(old) and at - diagonal >= len(new):
                return traces
    return None


def _step(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Where one edit leads to on a diagonal: an insertion keeps the place in `old`, a removal moves it."""
    below, above = furthest.get(diagonal - 1, -1), furthest.get(diagonal + 1, -1)
    if diagonal == -edits or (diagonal != edits and below < above):
        return above
    return below + 1


def _walked_back(traces: list[dict[int, int]], old: Sequence[Hashable], new: Sequence[Hashable]) -> Pairs:
    pairs: Pairs = []
    at, other = len(old), len(new)
    for edits in range(len(traces) - 1, -1, -1):
        diagonal = at - other
        start = _step(traces[edits], diagonal, edits)
        while at > start and other > start - diagonal:
            at, other = at - 1, other - 1
            pairs.append((at, other))
        down = diagonal == -edits or (
            diagonal != edits and traces[edits].get(diagonal - 1, -1) < traces[edits].get(diagonal + 1, -1)
        )
        if edits:
            at, other = (at, other - 1) if down else (at - 1, other)
    pairs.reverse()
    return pairs
