"""Words for ranks, for every front end. Standard library only.

`view/tabs/ranks.py` makes the lines of the tab of them.
"""

from collections.abc import Sequence

from aotlens.model.ranks import CollectiveMismatch, GraphDifference, Ranks
from aotlens.view.names import first_names

MOST_RANKS = 8

__all__ = ["difference_text", "differing", "mismatch_text", "rank_names", "ranks_summary"]


def rank_names(ranks: Sequence[int]) -> str:
    """`rank 0`, `ranks 0 to 7`, `ranks 0, 2, 5`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and tuple(ranks) == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {first_names([str(rank) for rank in ranks], MOST_RANKS)}"


def differing(ranks: Ranks) -> frozenset[str]:
    """Return the ids of the compilations whose graphs differ between ranks."""
    return frozenset(difference.compile_id for difference in ranks.differences)


def ranks_summary(ranks: Ranks) -> str:
    """`2 ranks compiled the same 3 graphs`."""
    ids = len({row.compile_id for row in ranks.compilations})
    if ranks.agree:
        return f"{len(ranks.ranks)} ranks compiled the same {'graph' if ids == 1 else f'{ids} functions'}"
    return f"{len(ranks.ranks)} ranks, {len(differing(ranks))} of {ids} compilations differ"


def difference_text(difference: GraphDifference) -> str:
    """Who has what, in one sentence."""
    return (
        f"{difference.function} ({difference.compile_id}, {difference.graph} graph):"
        f" {rank_names(difference.ranks)} {_have(difference.ranks)} {difference.text},"
        f" {rank_names(difference.others)} {_have(difference.others)} {difference.other_text}"
    )


def mismatch_text(mismatch: CollectiveMismatch) -> str:
    """Return which two collectives meet."""
    return (
        f"collective {mismatch.position}: rank {mismatch.rank} runs {mismatch.text},"
        f" rank {mismatch.other} runs {mismatch.other_text}"
    )


def _have(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"
