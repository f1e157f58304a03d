"""Combine tested edits for a target, from the cheapest on.

Invariant: of edits that exclude each other, a combination has at most one; what the target does not need is
left out.
"""

from collections.abc import Callable, Sequence

from aotlens.fit.advice.proposals import Proposal
from aotlens.fit.advice.search_state import Search, Tested
from aotlens.fit.advice.target import PeakTarget, excess_by_phase
from aotlens.model.fit import Fit
from aotlens.view.quantities import counted

__all__ = ["combined"]

ROUNDS = 2
"""How often every edit is added: one that does not help at first may help after others."""
MOST_RAISED = 1.25
"""The peak, as a multiple of the script's, with which an edit may still help beside others."""
CONFLICTS = ({"step in backward", "gradient accumulation"},)
"""Kinds that exclude each other: each micro batch has a backward, after which parameters may not change."""


Join = Callable[[Tested, Tested], tuple[Proposal, ...] | None]
"""Returns the proposals of a combination with those of one more edit; None if it is not to be added."""


def combined(search: Search, singles: Sequence[Tested], target: PeakTarget) -> Tested | None:
    """Return the cheapest tested combination that reaches the target, or the lowest one.

    Exact edits come before all edits; each time they are added from the cheapest on, then from the one on
    that lowers most, because edits that are cheap may keep others from helping.  At last edits are added that
    lower nothing alone.  Where the target is out of reach, edits are added once, those that lower most first.
    """

    def excess_bytes(tested: Tested) -> int:
        return target.excess_bytes(tested.fit)

    if singles and _is_out_of_reach(search, [*singles, *search.usable_others()], target):
        return _added_up(search, sorted(singles, key=excess_bytes), target)
    exact = [tested for tested in singles if search.is_exact(tested)]
    pools = [exact, singles] if len(exact) < len(singles) else [exact]
    tried: list[Tested] = []
    for pool in filter(None, pools):
        cheapest = sorted(pool, key=lambda tested: (search.cost(tested), excess_bytes(tested)))
        for order in (cheapest, sorted(pool, key=excess_bytes)):
            tried.append(_added_up(search, order, target))
            if target.is_reached(tried[-1].fit):
                return tried[-1]
    lowest = min(tried, key=lambda tested: target.bytes_of(tested.fit), default=None)
    most_bytes = MOST_RAISED * search.base.step_peak_bytes
    others = [tested for tested in search.usable_others() if tested.fit.step_peak_bytes <= most_bytes]
    if lowest is None or not others:
        return lowest
    others.sort(key=excess_bytes)
    additions = [*others, *sorted(singles, key=search.cost)]
    return _extended(search, lowest, additions, target, _joined)


def _is_out_of_reach(search: Search, tested: Sequence[Tested], target: PeakTarget) -> bool:
    """Return True if what exists at once exceeds the target, less all that the edits take from it alone."""
    floor_bytes = search.base.floor_bytes
    lowered: dict[str, int] = {}
    for each in tested:
        group = each.chosen[0].group
        lowered[group] = max(lowered.get(group, 0), floor_bytes - each.fit.floor_bytes)
    return floor_bytes - sum(lowered.values()) > target.size_bytes


def _added_up(search: Search, order: Sequence[Tested], target: PeakTarget) -> Tested:
    """Return the first single one that reaches the target, or add them up in this order."""

    def with_what_lowers(best: Tested, single: Tested) -> tuple[Proposal, ...] | None:
        lowers = _lowers_what_exceeds(search.base, single.fit, best.fit, target)
        return _joined(best, single) if lowers else None

    reaching = [tested for tested in order if target.is_reached(tested.fit)]
    return _extended(search, (reaching or order)[0], [*order] * ROUNDS, target, with_what_lowers)


def _extended(
    search: Search, best: Tested, additions: Sequence[Tested], target: PeakTarget, join: Join
) -> Tested:
    """Add to a combination, in this order, what lowers it, until the target is reached."""
    lowest = best
    for index, single in enumerate(additions):
        if target.is_reached(best.fit):
            break
        chosen = join(best, single)
        if chosen is None:
            continue
        search.start(filter(None, (join(best, each) for each in additions[index:])))
        if len(chosen) > 1:
            search.say(f"{counted(len(chosen), 'edit')} together")
        together = search.tested(chosen)
        if together is not None and target.excess_bytes(together.fit) < target.excess_bytes(best.fit):
            best = together
        lowest = min(lowest, best, key=lambda tested: target.bytes_of(tested.fit))
    return _pruned(search, best if target.is_reached(best.fit) else lowest, target)


def _joined(best: Tested, single: Tested) -> tuple[Proposal, ...] | None:
    """Return the proposals of a combination and one more, which replaces those that it excludes."""
    (added,) = single.chosen
    if added in best.chosen:
        return None
    return (*(proposal for proposal in best.chosen if _are_compatible(proposal, added)), added)


def _are_compatible(proposal: Proposal, other: Proposal) -> bool:
    """Return True if both can be made at once, and train as each of them does."""
    return proposal.group != other.group and {proposal.kind, other.kind} not in CONFLICTS


def _lowers_what_exceeds(base: Fit, single: Fit, best: Fit, target: PeakTarget) -> bool:
    """Return True if an edit alone lowers lines of a phase that the combination leaves above the target."""
    limit = target.peak_limit(best)
    exceeding = excess_by_phase(best, limit)
    before, after = excess_by_phase(base, limit), excess_by_phase(single, limit)
    lowers = any(after.get(phase, 0) < before.get(phase, 0) for phase in exceeding)
    return lowers or not exceeding.keys() & before.keys()


def _pruned(search: Search, best: Tested, target: PeakTarget) -> Tested:
    """Leave out what the target does not need, or what does not lower the peak; the latest additions last."""
    for proposal in best.chosen[:-1]:
        others = tuple(each for each in best.chosen if each is not proposal)
        without = search.tested(others) if others else None
        limit = max(target.size_bytes, target.bytes_of(best.fit))
        if without is not None and target.bytes_of(without.fit) <= limit:
            best = without
    return best
