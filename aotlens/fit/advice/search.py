"""Test every proposal, and combine the cheapest ones for a target.

Invariant: advice is what was run: with its edits the peak was lower, and the training compared equal or was
not compared for a stated reason.  A plan was run and compared as a whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aotlens.fit.advice.combination import combined
from aotlens.fit.advice.edits.optimizers import EIGHT_BIT, eight_bit_suggestion
from aotlens.fit.advice.proposals import Proposal
from aotlens.fit.advice.rules import Script
from aotlens.fit.advice.search_state import INEXACT_COST, Search, Tested
from aotlens.fit.advice.target import Goal, PeakTarget
from aotlens.fit.advice.trials import Trials
from aotlens.fixes.outcomes import line_edits
from aotlens.model.fit import Fit, FitAdvice, FitPlan
from aotlens.view.quantities import counted, percent

__all__ = ["Advised", "advise"]

LEAST_COSTS = {
    "gradient accumulation": 0.01,
    "block compilation": 0.03,
    "memory budget": 0.03,
    "chunked loss": 0.03,
    "checkpoint": 0.03,
    "rows in parts": 0.03,
    "offload": 0.03,
}
"""The least cost that is expected of a kind; 0 for others.  A kind is not run where an edit within this cost
reaches the target."""
OFTEN_DIFFERENT = ("gradient accumulation", "rows in parts", "step in backward")
"""Kinds that are compared before they are combined: dropout, noise and batch norm see other batches, and a
step may have several backward passes."""
LEAST_SAVED = 0.005
"""The smallest part of the peak that is worth advice; a plan may use edits that save less."""


@dataclass(frozen=True, slots=True)
class Advised:
    """The result of the search."""

    advice: tuple[FitAdvice, ...]
    plan: FitPlan | None
    texts: dict[str, str]
    """The files with the plan's edits; changed files only."""
    rejected: tuple[tuple[str, str], ...]
    """The titles of proposals that lower the peak but change the training, with the difference."""


def advise(
    trials: Trials, texts: Mapping[str, str], base: Fit, goal: Goal, say: Callable[[str], None]
) -> Advised:
    """Test the proposals for these files, and combine them if there is a target."""
    if goal.target is not None and goal.target.is_reached(base) and not goal.is_whole:
        return Advised((), _unedited(base, goal.target), {}, ())
    names = trials.names()
    trials.import_libraries(names.libraries, base)
    script = Script(texts, names, base)
    search = Search(trials, script, base, say, script.proposals())
    plan, changed = None, dict[str, str]()
    if goal.target is not None:
        plan, changed = _plan(search, goal.target)
    else:
        _test_singles(search, None)
    if goal.is_whole:
        _judge_singles(search)
    least_bytes = LEAST_SAVED * base.step_peak_bytes
    passed = [
        tested
        for tested in search.usable()
        if search.saved(tested) > least_bytes and search.is_accepted(tested)
    ]
    rows = sorted(passed, key=lambda tested: (-search.saved(tested), search.cost(tested)))
    rows = [tested for index, tested in enumerate(rows) if not _is_dominated(search, tested, rows[:index])]
    has_edit = any(proposal.kind == EIGHT_BIT for proposal in search.proposals)
    suggestion = eight_bit_suggestion(base, names) if goal.is_whole and not has_edit else None
    advice = (*(_advice(search, tested) for tested in rows), *([suggestion] if suggestion else []))
    return Advised(advice, plan, changed, tuple(search.rejected.items()))


def _is_dominated(search: Search, tested: Tested, better: Sequence[Tested]) -> bool:
    """Return True if an edit of the same group saves as much or more, and costs no more."""
    return any(
        other.chosen[0].group == tested.chosen[0].group and search.cost(other) <= search.cost(tested)
        for other in better
    )


def _judge_singles(search: Search) -> None:
    """Compare every proposal that lowers the peak; after a rejection another series may take its place."""
    while pending := [tested for tested in search.usable() if not search.is_judged(tested)]:
        search.judgement(pending[0])
        _test_singles(search, None)


def _test_singles(search: Search, target: PeakTarget | None) -> None:
    """Run the proposals that were not run and may be useful, each alone, the cheapest kinds first."""
    ordered = sorted(search.proposals, key=_least_cost)
    for index, proposal in enumerate(ordered):
        if not _is_promising(search, proposal, target):
            continue
        search.start((each,) for each in ordered[index:] if _is_promising(search, each, target))
        search.tried.add(proposal)
        search.say(f"{len(search.tried)} of at most {len(search.proposals)}: {proposal.title}")
        tested = search.tested((proposal,))
        if tested is None:
            continue
        if not _is_useful(search, tested, target):
            search.others.append(tested)
            continue
        search.singles.append(tested)
        if _is_often_different(search, proposal):
            search.judgement(tested)


def _is_promising(search: Search, proposal: Proposal, target: PeakTarget | None) -> bool:
    """Return True if what is known does not speak against running the proposal."""
    return proposal not in search.tried and not _is_useless(search, proposal, target)


def _is_often_different(search: Search, proposal: Proposal) -> bool:
    """Return True for a kind that often trains something else: a checkpoint may update buffers twice."""
    has_buffers = any(row.kind == "buffer" for row in search.base.by_kind)
    return proposal.kind in OFTEN_DIFFERENT or (proposal.kind == "checkpoint" and has_buffers)


def _least_cost(proposal: Proposal) -> float:
    return LEAST_COSTS.get(proposal.kind, 0.0) + (0 if proposal.is_exact else INEXACT_COST)


def _is_useful(search: Search, tested: Tested, target: PeakTarget | None) -> bool:
    if search.saved(tested) > 0:
        return True
    return target is not None and target.excess_bytes(tested.fit) < target.excess_bytes(search.base)


def _is_elsewhere(search: Search, proposal: Proposal, target: PeakTarget | None) -> bool:
    """Return True if the peaks of the phases that the proposal may lower are low enough without it."""
    peaks = {row.phase: row.peak_bytes for row in search.base.phases}
    if not proposal.phases or not peaks:
        return False
    limit = search.base.step_peak_bytes - 1 if target is None else target.peak_limit(search.base)
    return all(peaks.get(phase, 0) <= limit for phase in proposal.phases)


def _is_useless(search: Search, proposal: Proposal, target: PeakTarget | None) -> bool:
    """Return True if a weaker proposal fails, another series is not rejected, or a cheaper one suffices."""
    if _is_elsewhere(search, proposal, target):
        return True
    passed = {tested.chosen[0] for tested in search.singles}
    earlier = search.proposals[: search.proposals.index(proposal)]
    series = [each for each in earlier if proposal.series and each.series == proposal.series]
    if any(each not in passed or each.title in search.rejected for each in series):
        return True
    usable = [tested.chosen[0] for tested in search.usable() if tested.chosen[0].group == proposal.group]
    if proposal.series and any(each.series != proposal.series for each in usable):
        return True
    reaching = [tested for tested in search.usable() if target is not None and target.is_reached(tested.fit)]
    return any(
        tested.chosen[0].group == proposal.group
        or not proposal.is_exact
        or search.cost(tested) <= _least_cost(proposal)
        for tested in reaching
    )


def _plan(search: Search, target: PeakTarget) -> tuple[FitPlan, dict[str, str]]:
    """Return the cheapest combination that reaches the target and keeps the training, or the lowest one."""
    if target.is_reached(search.base):
        return _unedited(search.base, target), {}
    while True:
        _test_singles(search, target)
        singles = search.usable()
        combination = combined(search, singles, target)
        if combination is None:
            return _unedited(search.base, target), {}
        search.say(f"comparing the training with {counted(len(combination.chosen), 'edit')}")
        if search.judgement(combination).outcome is not None:
            return _plan_of(search, combination, target), combination.texts
        if len(combination.chosen) > 1:
            alone = (*singles, *search.usable_others())
            members = [tested for tested in alone if tested.chosen[0] in combination.chosen]
            judgements = [search.judgement(tested) for tested in members]
            if all(judgement.outcome is not None for judgement in judgements):
                reason = f"with the other edits, {search.judgement(combination).text}"
                search.rejected[combination.chosen[-1].title] = reason


def _unedited(base: Fit, target: PeakTarget) -> FitPlan:
    """Return the plan where no edit is needed, or none helps."""
    peak_bytes = target.bytes_of(base)
    if target.is_reached(base):
        return FitPlan(target.size_bytes, peak_bytes)
    return FitPlan(
        target.size_bytes,
        peak_bytes,
        remaining=base.by_kind,
        floor=base.floor,
        floor_at=base.floor_at,
        remaining_at=base.at,
    )


def _plan_of(search: Search, combination: Tested, target: PeakTarget) -> FitPlan:
    originals = {file: search.script.texts[file] for file in combination.texts}
    judgement = search.judgement(combination)
    is_reached = target.is_reached(combination.fit)
    return FitPlan(
        target.size_bytes,
        target.bytes_of(combination.fit),
        tuple(proposal.title for proposal in combination.chosen),
        line_edits(originals, combination.texts),
        _cost_words(search.base, combination.fit),
        combination.fit.step_flops - search.base.step_flops,
        combination.fit.step_operators - search.base.step_operators,
        _extra_milliseconds(search.base, combination.fit),
        judgement.outcome or "not tested",
        judgement.text,
        () if is_reached else combination.fit.by_kind,
        () if is_reached else combination.fit.floor,
        None if is_reached else combination.fit.floor_at,
        None if is_reached else combination.fit.at,
    )


def _advice(search: Search, tested: Tested) -> FitAdvice:
    (proposal,) = tested.chosen
    judgement = search.judgement(tested)
    return FitAdvice(
        proposal.title,
        proposal.kind,
        tested.fit.step_peak_bytes,
        search.saved(tested),
        line_edits({file: search.script.texts[file] for file in tested.texts}, tested.texts),
        _cost_words(search.base, tested.fit),
        tested.fit.step_flops - search.base.step_flops,
        tested.fit.step_operators - search.base.step_operators,
        _extra_milliseconds(search.base, tested.fit),
        is_tested=True,
        outcome=judgement.outcome or "not tested",
        compared=judgement.text,
    )


def _extra_milliseconds(base: Fit, fit: Fit) -> float | None:
    if base.step_milliseconds is None or fit.step_milliseconds is None:
        return None
    return fit.step_milliseconds - base.step_milliseconds


def _cost_words(base: Fit, fit: Fit) -> str:
    """Return `12% more FLOPs, 30% more operators`; empty if it costs neither."""
    parts = []
    for name, before, after in (
        ("FLOPs", base.step_flops, fit.step_flops),
        ("operators", base.step_operators, fit.step_operators),
    ):
        share = (after - before) / max(before, 1)
        if abs(share) >= 0.005:
            parts.append(f"{percent(abs(share))} {'more' if share > 0 else 'fewer'} {name}")
    return ", ".join(parts)
