"""Find the candidates that work: each alone on a copy of the script, then together those that passed.

Invariant: a fix is offered with the result of a run of its own, and the written edits are those of one run
that did not differ from eager.

| step of a round | runs | outcome |
|---|---|---|
| the candidates of a target, the best first, until one passes | one each | passed, neutral, rejected |
| all that passed | one; halves of them where it fails | written, or offered alone |
| with these, neutral ones: the target is gone, but alone nothing is saved | the same | written, tentative |

The next round starts from the written text, because a fix may reveal code after it.  Where nothing is
written, it starts from the tentative text: of two counters that change in the same calls, Dynamo names one.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aotlens.fixes.candidates import Alternatives, Candidate, Target, targets
from aotlens.fixes.outcomes import SearchResult, cost_of, fix_outcome, line_edits
from aotlens.fixes.rules import proposed
from aotlens.model.dynamo import Dynamo, TriedFix
from aotlens.model.edits import edited
from aotlens.model.source import Edit, Fix
from aotlens.view.why import problems

__all__ = ["Attempt", "Limits", "find_fixes"]

NOT_TRIED = "not tried: the limit of runs is reached"
REMAINS = "the problem that it should remove remains"
SAVES_NOTHING = "no less is compiled with it"
OVERLAPS = "it changes the same text as another fix"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of running an edited copy."""

    dynamo: Dynamo | None
    """None if it compiled nothing."""
    differs: str
    """How it differs from eager; empty if it does not."""
    compared: str = ""
    """What was compared and is equal."""
    is_masked: bool = False
    """Whether some output was not compared, because it also differs without an edit."""


Texts = Mapping[str, str]
Run = Callable[[Texts], Attempt]
"""Runs the script with these files in place of those on disk; only changed files are passed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop; running trials end."""

    runs: int = 40
    seconds: float = 600.0
    rounds: int = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate for a target."""

    target: Target
    candidate: Candidate

    @property
    def subject(self) -> tuple[str, str, str]:
        """Return kind, function and target, as the report names them."""
        return self.candidate.kind, self.target.function, self.target.name


class OutOfRuns(Exception):  # noqa: N818 (it ends the search, and is no fault)
    """A limit is reached."""


@dataclass(slots=True)
class Search:
    """The state of the search; grows with each run."""

    run: Run
    limits: Limits
    originals: dict[str, str]
    """Every editable file."""
    before: Dynamo
    """From the unedited script."""
    texts: dict[str, str]
    """The files with the edits of earlier rounds."""
    dynamo: Dynamo
    """From the last accepted run."""
    together: Attempt | None = None
    """The last accepted run: that of all written edits."""
    rejected: list[tuple[Trial, str]] = field(default_factory=list)
    passed: list[TriedFix] = field(default_factory=list)
    tentative: list[Trial] = field(default_factory=list)
    """The neutral candidates of the last round."""
    written: int = 0
    attempts: dict[frozenset[Edit], Attempt] = field(default_factory=dict)
    """The runs of this round, by their edits."""
    runs: int = 0
    started: float = field(default_factory=time.monotonic)

    def attempt(self, trials: Sequence[Trial]) -> Attempt:
        """Run the script with these edits; equal edits run once in a round."""
        edits = frozenset(edit for trial in trials for edit in trial.candidate.edits)
        if edits not in self.attempts:
            spent = time.monotonic() - self.started
            if self.runs >= self.limits.runs or spent > self.limits.seconds:
                raise OutOfRuns
            self.runs += 1
            self.attempts[edits] = self.run(self.changed(self.with_edits(trials)))
        return self.attempts[edits]

    def with_edits(self, trials: Sequence[Trial]) -> dict[str, str]:
        edits = tuple(dict.fromkeys(edit for trial in trials for edit in trial.candidate.edits))
        by_file = {file: [edit for edit in edits if edit.span.file == file] for file in self.texts}
        return {file: edited(text, by_file[file]) for file, text in self.texts.items()}

    def changed(self, texts: Texts) -> dict[str, str]:
        return {file: text for file, text in texts.items() if text != self.originals[file]}

    def fault(self, trials: Sequence[Trial], base: Sequence[Trial] = ()) -> str:
        """Run the script with these edits; return why they do not pass, or an empty text."""
        try:
            attempt = self.attempt([*base, *trials])
        except OutOfRuns:
            return NOT_TRIED
        if attempt.differs:
            return attempt.differs
        if attempt.is_masked and any(trial.candidate.changes_numbers for trial in trials):
            return "what the script prints differs from run to run, so it cannot be compared"
        if not cost_of(attempt.dynamo).compilations:
            return "nothing is compiled any more"
        left, known = targets(attempt.dynamo), targets(self.dynamo)
        if len(trials) > 1 and left.keys() - known.keys():
            return "something new is lost"  # single runs show which of them causes it
        if any(left.get(trial.target, 0) >= known.get(trial.target, 1) for trial in trials):
            return REMAINS
        return "" if self.saves(attempt, trials) else SAVES_NOTHING

    def saves(self, attempt: Attempt, trials: Sequence[Trial]) -> bool:
        """Return True if less runs in eager or is compiled, or if code is reached for the first time."""
        before, after = cost_of(self.dynamo).order, cost_of(attempt.dynamo).order
        return after < before or (after == before and all(self.is_in_eager(trial.target) for trial in trials))

    def is_in_eager(self, target: Target) -> bool:
        """Return True if the target prevented the rest of a function from being compiled."""
        return any(
            entry.text == target.name and entry.effect in ("rest in eager", "function in eager")
            for entry in self.dynamo.breaks
        )

    def accept(self, trials: Sequence[Trial], base: Sequence[Trial]) -> tuple[list[Trial], dict[Trial, str]]:
        """Return the trials that pass together with those accepted before, and why the others do not."""
        if not trials:
            return [], {}
        reason = self.fault(trials, base)
        if not reason:
            self.together = self.attempt([*base, *trials])
            self.dynamo = self.together.dynamo or self.dynamo
            return list(trials), {}
        if len(trials) == 1 or reason == NOT_TRIED:
            return [], dict.fromkeys(trials, reason)
        middle = len(trials) // 2
        first, conflicts = self.accept(trials[:middle], base)
        second, more = self.accept(trials[middle:], [*base, *first])
        return [*first, *second], conflicts | more

    def offer(self, trial: Trial, attempt: Attempt, together: int, conflict: str = "") -> None:
        """Record a candidate that passed, with the run that shows it."""
        is_first_round = self.texts == self.originals
        edits = (
            trial.candidate.edits
            if is_first_round
            else line_edits(self.originals, self.changed(self.with_edits([trial])))
        )
        outcome = fix_outcome(self.before, attempt.dynamo or self.before, attempt.compared, together)
        fix = Fix(trial.candidate.title, edits)
        offered = TriedFix(*trial.subject, fix, outcome, conflict=conflict)
        self.passed = [
            entry for entry in self.passed if not (entry.conflict and is_same_target(entry, offered))
        ]
        self.passed.append(offered)


def is_same_target(first: TriedFix, second: TriedFix) -> bool:
    return (first.function, first.target) == (second.function, second.target)


def find_fixes(run: Run, dynamo: Dynamo, texts: Texts, limits: Limits | None = None) -> SearchResult:
    """Try edits of these files until nothing is left to try, or a limit is reached."""
    search = Search(run, limits or Limits(), dict(texts), dynamo, dict(texts), dynamo)
    for _ in range(search.limits.rounds):
        if not _round(search) and not _tentative_round(search):
            break
    changed, together = search.changed(search.texts), None
    if search.together is not None:
        together = fix_outcome(dynamo, search.dynamo, search.together.compared, search.written)
    rejected = tuple(
        TriedFix(*trial.subject, Fix(trial.candidate.title, trial.candidate.edits), None, reason)
        for trial, reason in search.rejected
    )
    return SearchResult(
        (*search.passed, *rejected),
        changed,
        {file: search.originals[file] for file in changed},
        search.runs,
        all(reason != NOT_TRIED for _, reason in search.rejected),
        together,
    )


def _round(search: Search) -> bool:
    """Judge the candidates of every target, then write those that pass together; return True if any do."""
    search.attempts.clear()
    known = {(trial.target, trial.candidate.title) for trial, _ in search.rejected}
    passing: list[Trial] = []
    neutral: list[Trial] = []
    for entry in _by_loss(search):
        trials = [Trial(entry.target, candidate) for candidate in entry.candidates]
        new = [trial for trial in trials if (trial.target, trial.candidate.title) not in known]
        trial, is_neutral = _judged(search, new)
        if trial is not None:
            (neutral if is_neutral else passing).append(trial)
    alone = {trial: search.attempt([trial]) for trial in passing}
    accepted, conflicts = _joined(search, passing, [])
    for trial, attempt in alone.items():
        search.offer(trial, attempt, search.written + 1, conflicts.get(trial, ""))
    added, useless = _joined(search, neutral, accepted)
    written = [*accepted, *added]
    for trial in added:
        search.offer(trial, search.attempt(written), search.written + len(written))
    search.tentative = [] if written else list(useless)
    search.rejected += [(trial, SAVES_NOTHING) for trial in useless if written]
    search.texts = search.with_edits(written)
    search.written += len(written)
    return bool(written)


def _tentative_round(search: Search) -> bool:
    """Judge what else recompiles once the neutral edits are made; return True if these pass with it."""
    neutral, before = search.tentative, (search.texts, search.dynamo, search.written)
    if not neutral or search.fault(neutral) != SAVES_NOTHING:
        search.rejected += [(trial, SAVES_NOTHING) for trial in neutral]
        return False
    search.dynamo = search.attempt(neutral).dynamo or search.dynamo
    search.texts, search.written = search.with_edits(neutral), search.written + len(neutral)
    if _round(search) and search.together is not None:
        texts, search.texts = search.texts, before[0]
        for trial in neutral:
            search.offer(trial, search.together, search.written)
        search.texts = texts
        return True
    search.rejected += [(trial, SAVES_NOTHING) for trial in (*neutral, *search.tentative)]
    search.texts, search.dynamo, search.written = before
    return False


def _by_loss(search: Search) -> list[Alternatives]:
    """Return the targets with an edit to try, in the order in which they should be fixed."""
    every = problems(search.dynamo)
    order = {(problem.function, problem.target): number for number, problem in enumerate(every)}
    return sorted(
        proposed(search.dynamo, search.texts),
        key=lambda entry: order.get((entry.target.function, entry.target.name), len(order)),
    )


def _judged(search: Search, trials: Sequence[Trial]) -> tuple[Trial | None, bool]:
    """Return the first candidate that passes alone, or the first neutral one and True."""
    neutral: list[Trial] = []
    for trial in trials:
        reason = search.fault([trial])
        if not reason:
            search.rejected += [(other, SAVES_NOTHING) for other in neutral]
            return trial, False
        if reason == SAVES_NOTHING:
            neutral.append(trial)
        else:
            search.rejected.append((trial, reason))
    search.rejected += [(other, SAVES_NOTHING) for other in neutral[1:]]
    return (neutral[0], True) if neutral else (None, False)


def _joined(
    search: Search, trials: Sequence[Trial], base: Sequence[Trial]
) -> tuple[list[Trial], dict[Trial, str]]:
    """Return the trials that pass together with the base, and why the others do not."""
    compatible = list(_compatible(trials, base))
    accepted, conflicts = search.accept(compatible, base)
    return accepted, {trial: OVERLAPS for trial in trials if trial not in compatible} | conflicts


def _compatible(trials: Sequence[Trial], base: Sequence[Trial]) -> Iterator[Trial]:
    """Yield the trials whose edits do not overlap those of the base or of earlier trials."""
    edits = [edit for trial in base for edit in trial.candidate.edits]
    for trial in trials:
        if not any(_overlap(edit, other) for edit in trial.candidate.edits for other in edits):
            yield trial
            edits += trial.candidate.edits


def _overlap(edit: Edit, other: Edit) -> bool:
    """Return True if two edits change the same text; equal edits are made once, insertions in sequence."""
    first, second = edit.span, other.span
    if first.file != second.file or edit == other:
        return False
    begins = [(span.line, span.col) for span in (first, second)]
    ends = [(span.end_line, span.end_col) for span in (first, second)]
    if begins[0] == ends[0] and begins[1] == ends[1]:
        return False
    return begins[0] < ends[1] and begins[1] < ends[0]
