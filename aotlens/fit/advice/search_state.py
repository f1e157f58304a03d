"""The state of a search for edits: what was run, compared and rejected.

Invariant: each combination is run and compared once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aotlens.fit.advice.comparison import HALF_DISTANCE, Judgement, judged, judged_in_double
from aotlens.fit.advice.jobs import TrainingOutcome
from aotlens.fit.advice.proposals import Proposal
from aotlens.fit.advice.rules import Script
from aotlens.fit.advice.trials import Trials
from aotlens.model.fit import Fit
from aotlens.view.quantities import human_bytes

__all__ = ["INEXACT_COST", "Search", "Tested"]

MOST_REAL_BYTES = 2 << 30
"""The largest predicted peak of a script that is also run on real tensors."""
FREE = 0.002
"""The largest cost, as a fraction of the step's work, that counts as none."""
OPERATOR_SHARE = 0.02
"""The cost of doubling the calls of operators, as a fraction of the step's work: assumed, for ranking."""
INEXACT_COST = 4
"""The additional cost of an edit that is not exact: it comes last."""
ASSUMED_COSTS = {"block compilation": 0.03}
"""The cost of a kind that FLOPs and operators do not show: kernels are fused within a module only."""


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
    others: list[Tested] = field(default_factory=list)
    """Those that lower nothing alone; they may beside others."""
    rejected: dict[str, str] = field(default_factory=dict)
    """The difference in training, by the title of the proposal that causes it."""
    _judgements: dict[tuple[Proposal, ...], Judgement] = field(default_factory=dict)
    _reference: TrainingOutcome | None = None
    _double_reference: TrainingOutcome | None = None
    _noise: TrainingOutcome | None = None

    def start(self, each: Iterable[tuple[Proposal, ...]]) -> None:
        """Start to run the script with each of these edits, as far as cores are free."""
        self.trials.start_fits(filter(None, map(self.script.with_edits, each)))

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
        return self._not_rejected(self.singles)

    def usable_others(self) -> list[Tested]:
        """Return the same of those that lower nothing alone."""
        return self._not_rejected(self.others)

    def _not_rejected(self, each: list[Tested]) -> list[Tested]:
        rejected = [proposal for proposal in self.proposals if proposal.title in self.rejected]
        series = {proposal.series for proposal in rejected if proposal.series}
        return [
            tested
            for tested in each
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
        judgement = judged(self._reference, outcome, is_exact, self._repeated_run)
        may_be_rounding = is_exact and max(outcome.distance, outcome.buffer_distance) <= HALF_DISTANCE
        if judgement.outcome is not None or outcome.failure or not may_be_rounding:
            return judgement
        return self._judged_in_double(calls, tested) or judgement

    def _judged_in_double(self, calls: int, tested: Tested) -> Judgement | None:
        """Compare in float64, because normalized gradients amplify the rounding of another order of sums."""
        if self._double_reference is None:
            self._double_reference = self.trials.train(calls, is_reference=True, is_double=True)
        if self._double_reference.failure:
            return None
        edited = self.trials.train(calls, tested.texts, is_double=True)
        return judged_in_double(self._double_reference, edited)

    def _repeated_run(self) -> TrainingOutcome:
        """Run the unedited script once more: what differs between its own runs is noise."""
        if self._noise is None:
            self._noise = self.trials.train(self.base.step * self.base.calls_per_step)
        return self._noise

    def is_exact(self, tested: Tested) -> bool:
        return all(proposal.is_exact for proposal in tested.chosen)

    def cost(self, tested: Tested) -> float:
        """Return the price for ranking: more work, more operators, less precision."""
        work = (tested.fit.step_flops - self.base.step_flops) / max(self.base.step_flops, 1)
        calls = (tested.fit.step_operators - self.base.step_operators) / max(self.base.step_operators, 1)
        assumed = max(ASSUMED_COSTS.get(proposal.kind, 0.0) for proposal in tested.chosen)
        cost = max(assumed, work + OPERATOR_SHARE * calls)
        if not self.is_exact(tested):
            return INEXACT_COST + cost
        return 0.0 if cost <= FREE else cost

    def saved(self, tested: Tested) -> int:
        return self.base.step_peak_bytes - tested.fit.step_peak_bytes


def _has_half_precision(fit: Fit) -> bool:
    """Return True if the step itself computes in a dtype of 16 bits."""
    return any(each.tensor.startswith(("bfloat16", "float16")) for each in fit.allocations)
