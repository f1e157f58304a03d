"""Test every proposal, and combine the cheapest ones for a target.

Invariant: advice is what was run: with its edits the peak was lower, and the training compared equal or was
not compared for a stated reason.  A plan was run and compared as a whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aotlens.fit.advice.comparison import Judgement, judged
from aotlens.fit.advice.jobs import TrainingOutcome
from aotlens.fit.advice.optimizers import eight_bit_optimizer
from aotlens.fit.advice.proposals import Proposal
from aotlens.fit.advice.rules import Script
from aotlens.fit.advice.target import Goal, Target
from aotlens.fit.advice.trials import Trials
from aotlens.fixes.outcomes import line_edits
from aotlens.model.fit import Fit, FitAdvice, FitPlan
from aotlens.view.quantities import counted, human_bytes, percent

__all__ = ["Advised", "advise"]

MOST_REAL_BYTES = 2 << 30
"""The largest predicted peak of a script that is also run on real tensors."""
FREE = 0.002
"""The largest cost, as a fraction of the step's work, that counts as none."""
OPERATOR_SHARE = 0.02
"""The cost of doubling the calls of operators, as a fraction of the step's work: assumed, for ranking."""
LEAST_COSTS = {
    "gradient accumulation": 0.01,
    "memory budget": 0.03,
    "chunked loss": 0.03,
    "checkpoint": 0.03,
    "offload": 0.03,
}
"""The least cost that is expected of a kind; 0 for others.  A kind is not run where an edit within this cost
reaches the target."""
OFTEN_DIFFERENT = ("gradient accumulation",)
"""Kinds that are compared before they are combined: dropout, noise and batch norm see other batches."""
LEAST_SAVED = 0.005
"""The smallest part of the peak that is worth advice; a plan may use edits that save less."""
ROUNDS = 2
"""How often every edit is added: one that does not help at first may help after others."""
INEXACT_COST = 4
"""The additional cost of an edit that is not exact: it comes last."""


@dataclass(frozen=True, slots=True)
class Advised:
    """The result of the search."""

    advice: tuple[FitAdvice, ...]
    plan: FitPlan | None
    texts: dict[str, str]
    """The files with the plan's edits; changed files only."""
    rejected: tuple[tuple[str, str], ...]
    """The titles of proposals that lower the peak but change the training, with the difference."""


@dataclass(frozen=True, slots=True)
class Tested:
    """Proposals that were made together and run."""

    chosen: tuple[Proposal, ...]
    texts: dict[str, str]
    fit: Fit


@dataclass(slots=True)
class Search:
    """The state of the search; mutable, because the reference and the noise are run once."""

    trials: Trials
    script: Script
    base: Fit
    say: Callable[[str], None]
    proposals: tuple[Proposal, ...]
    tried: set[Proposal] = field(default_factory=set)
    singles: list[Tested] = field(default_factory=list)
    """The proposals that lower the peak, or that of a phase that exceeds the target, each alone."""
    rejected: dict[str, str] = field(default_factory=dict)
    """The difference in training, by the title of the proposal that causes it."""
    _judgements: dict[tuple[Proposal, ...], Judgement] = field(default_factory=dict)
    _reference: TrainingOutcome | None = None
    _noise: TrainingOutcome | None = None

    def tested(self, chosen: tuple[Proposal, ...]) -> Tested | None:
        """Run the script with these proposals; None if they cannot be made together, or it fails."""
        texts = self.script.with_edits(chosen)
        fit = self.trials.fit(texts) if texts else None
        if not texts or fit is None or fit.is_periodic < self.base.is_periodic or not fit.curve:
            return None
        return Tested(chosen, texts, fit)

    def judgement(self, tested: Tested) -> Judgement:
        """Compare the training with and without the edits, once."""
        if tested.chosen not in self._judgements:
            judgement = self._judgements[tested.chosen] = self._judged(tested)
            if judgement.outcome is None and len(tested.chosen) == 1:
                self.rejected[tested.chosen[0].title] = judgement.text
        return self._judgements[tested.chosen]

    def usable(self) -> list[Tested]:
        """Return the singles that are not rejected, and of whose series no weaker one is."""
        rejected = [proposal for proposal in self.proposals if proposal.title in self.rejected]
        series = {proposal.series for proposal in rejected if proposal.series}
        return [
            tested
            for tested in self.singles
            if tested.chosen[0] not in rejected and tested.chosen[0].series not in series
        ]

    def is_judged(self, tested: Tested) -> bool:
        return tested.chosen in self._judgements

    def is_accepted(self, tested: Tested) -> bool:
        """Return True if the training was compared and is not rejected."""
        return self.is_judged(tested) and self.judgement(tested).outcome is not None

    def _judged(self, tested: Tested) -> Judgement:
        if self.base.step_peak_bytes > MOST_REAL_BYTES:
            return Judgement(
                "not compared", f"it needs more than {human_bytes(MOST_REAL_BYTES)} on real tensors"
            )
        calls = self.base.step * self.base.calls_per_step
        if self._reference is None:
            self._reference = self.trials.train(calls, is_reference=True)
        if self._reference.failure:
            return Judgement(
                "not compared", f"the script does not run on real tensors: {self._reference.failure}"
            )
        outcome = self.trials.train(calls, tested.texts)
        is_exact = self.is_exact(tested) and not _has_half_precision(self.base)
        return judged(self._reference, outcome, is_exact, self._unedited)

    def _unedited(self) -> TrainingOutcome:
        if self._noise is None:
            self._noise = self.trials.train(self.base.step * self.base.calls_per_step)
        return self._noise

    def is_exact(self, tested: Tested) -> bool:
        return all(proposal.is_exact for proposal in tested.chosen)

    def cost(self, tested: Tested) -> float:
        """Return the price for ranking: more work, more operators, less precision."""
        work = (tested.fit.step_flops - self.base.step_flops) / max(self.base.step_flops, 1)
        calls = (tested.fit.step_operators - self.base.step_operators) / max(self.base.step_operators, 1)
        cost = max(0.0, work + OPERATOR_SHARE * calls)
        if not self.is_exact(tested):
            return INEXACT_COST + cost
        return 0.0 if cost <= FREE else cost

    def saved(self, tested: Tested) -> int:
        return self.base.step_peak_bytes - tested.fit.step_peak_bytes


def advise(
    trials: Trials, texts: Mapping[str, str], base: Fit, goal: Goal, say: Callable[[str], None]
) -> Advised:
    """Test the proposals for these files, and combine them if there is a target."""
    script = Script(texts, trials.names(), base)
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
    suggestion = eight_bit_optimizer(base) if goal.is_whole else None
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


def _test_singles(search: Search, target: Target | None) -> None:
    """Run the proposals that were not run and may be useful, each alone, the cheapest kinds first."""
    for proposal in sorted(search.proposals, key=_least_cost):
        if proposal in search.tried or _is_useless(search, proposal, target):
            continue
        search.tried.add(proposal)
        search.say(f"{len(search.tried)} of at most {len(search.proposals)}: {proposal.title}")
        tested = search.tested((proposal,))
        if tested is not None and _is_useful(search, tested, target):
            search.singles.append(tested)
            if proposal.kind in OFTEN_DIFFERENT:
                search.judgement(tested)


def _least_cost(proposal: Proposal) -> float:
    return LEAST_COSTS.get(proposal.kind, 0.0) + (0 if proposal.is_exact else INEXACT_COST)


def _is_useful(search: Search, tested: Tested, target: Target | None) -> bool:
    if search.saved(tested) > 0:
        return True
    return target is not None and target.excess_bytes(tested.fit) < target.excess_bytes(search.base)


def _is_elsewhere(search: Search, proposal: Proposal, target: Target | None) -> bool:
    """Return True if the peaks of the phases that the proposal may lower are low enough without it."""
    peaks = {row.phase: row.peak_bytes for row in search.base.phases}
    if not proposal.phases or not peaks:
        return False
    limit = search.base.step_peak_bytes - 1 if target is None else target.peak_limit(search.base)
    return all(peaks.get(phase, 0) <= limit for phase in proposal.phases)


def _is_useless(search: Search, proposal: Proposal, target: Target | None) -> bool:
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


def _combined(search: Search, singles: Sequence[Tested], target: Target) -> Tested | None:
    """Return the cheapest tested combination that reaches the target, or the lowest one."""
    exact = [tested for tested in singles if search.is_exact(tested)]
    best = _of_these(search, exact, target)
    if best is None or not target.is_reached(best.fit):
        best = _of_these(search, singles, target)
    return best


def _of_these(search: Search, singles: Sequence[Tested], target: Target) -> Tested | None:
    """Return the cheapest single one that reaches the target, or add them up from the cheapest on."""
    if not singles:
        return None
    order = sorted(singles, key=lambda tested: (search.cost(tested), target.excess_bytes(tested.fit)))
    reaching = [tested for tested in order if target.is_reached(tested.fit)]
    best = lowest = (reaching or order)[0]
    for single in order * ROUNDS:
        if target.is_reached(best.fit):
            break
        (added,) = single.chosen
        if added in best.chosen or not _lowers_what_exceeds(search.base, single.fit, best.fit, target):
            continue
        others = tuple(proposal for proposal in best.chosen if proposal.group != added.group)
        search.say(f"{counted(len(others) + 1, 'edit')} together")
        together = search.tested((*others, added))
        if together is not None and target.excess_bytes(together.fit) < target.excess_bytes(best.fit):
            best = together
        lowest = min(lowest, best, key=lambda tested: target.bytes_of(tested.fit))
    return _pruned(search, best, target) if target.is_reached(best.fit) else lowest


def _lowers_what_exceeds(base: Fit, single: Fit, best: Fit, target: Target) -> bool:
    """Return True if an edit alone lowers a phase that the combination so far leaves above the target."""
    limit = target.peak_limit(best)
    exceeding = [row.phase for row in best.phases if row.peak_bytes > limit]
    before = {row.phase: row.peak_bytes for row in base.phases}
    after = {row.phase: row.peak_bytes for row in single.phases}
    lowers = any(after.get(phase, 0) < before.get(phase, 0) for phase in exceeding)
    return lowers or not exceeding


def _pruned(search: Search, best: Tested, target: Target) -> Tested:
    """Leave out what the target does not need, the latest additions last."""
    for proposal in best.chosen[:-1]:
        others = tuple(each for each in best.chosen if each is not proposal)
        without = search.tested(others) if others else None
        if without is not None and target.is_reached(without.fit):
            best = without
    return best


def _plan(search: Search, target: Target) -> tuple[FitPlan, dict[str, str]]:
    """Return the cheapest combination that reaches the target and keeps the training, or the lowest one."""
    while True:
        _test_singles(search, target)
        singles = search.usable()
        combined = _combined(search, singles, target)
        if combined is None:
            return FitPlan(target.size_bytes, target.bytes_of(search.base), remaining=search.base.by_kind), {}
        search.say(f"comparing the training with {counted(len(combined.chosen), 'edit')}")
        if search.judgement(combined).outcome is not None:
            return _plan_of(search, combined, target), combined.texts
        if len(combined.chosen) > 1:
            members = [tested for tested in singles if tested.chosen[0] in combined.chosen]
            judgements = [search.judgement(tested) for tested in members]
            if all(judgement.outcome is not None for judgement in judgements):
                reason = f"with the other edits, {search.judgement(combined).text}"
                search.rejected[combined.chosen[-1].title] = reason


def _plan_of(search: Search, combined: Tested, target: Target) -> FitPlan:
    originals = {file: search.script.texts[file] for file in combined.texts}
    judgement = search.judgement(combined)
    return FitPlan(
        target.size_bytes,
        target.bytes_of(combined.fit),
        tuple(proposal.title for proposal in combined.chosen),
        line_edits(originals, combined.texts),
        _cost_words(search.base, combined.fit),
        combined.fit.step_flops - search.base.step_flops,
        combined.fit.step_operators - search.base.step_operators,
        _extra_milliseconds(search.base, combined.fit),
        judgement.outcome or "not tested",
        judgement.text,
        () if target.is_reached(combined.fit) else combined.fit.by_kind,
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


def _has_half_precision(fit: Fit) -> bool:
    """Return True if the step itself computes in a dtype of 16 bits."""
    return any(each.tensor.startswith(("bfloat16", "float16")) for each in fit.allocations)
