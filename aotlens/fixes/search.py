"""Find the candidates that work in few runs: all of them at once, halves if that fails.

Invariant: accepted candidates were run together, as they are offered, and that run did not differ from eager.

A round tries the best candidate of every target, then the next one of the rejected ones.  The next round
starts from the accepted text, because a fix may reveal code after it.
"""

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aotlens.fixes.candidates import Alternatives, Candidate, Target, targets
from aotlens.fixes.rules import proposed
from aotlens.model.dynamo import Dynamo, FixOutcome, TriedFix
from aotlens.model.edits import edited
from aotlens.model.source import Edit, Fix, Span

__all__ = ["Attempt", "Limits", "SearchResult", "find_fixes", "line_edits"]


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

    runs: int = 16
    seconds: float = 600.0
    rounds: int = 4


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The fixes, and the files with all accepted edits."""

    fixes: tuple[TriedFix, ...]
    texts: dict[str, str]
    """Changed files only."""
    originals: dict[str, str]
    """The same files before the edits."""
    runs: int
    is_complete: bool
    """False if a limit left candidates untried."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate for a target."""

    target: Target
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Cost:
    """The graph breaks and recompilations of a run; ordered, code in eager first."""

    in_eager: int
    breaks: int
    compilations: int

    @property
    def order(self) -> tuple[int, int]:
        return self.in_eager, self.breaks + self.compilations


def cost_of(dynamo: Dynamo | None) -> Cost:
    functions = () if dynamo is None else dynamo.functions
    breaks = [entry for function in functions for entry in function.breaks]
    in_eager = sum(entry.effect in ("rest in eager", "function in eager") for entry in breaks)
    in_eager += sum(function.limit_hit for function in functions)
    in_eager += sum(entry.is_loss for function in functions for entry in function.skipped)
    compilations = sum(len(function.compilations) for function in functions)
    return Cost(in_eager, len(breaks), compilations)


class OutOfRuns(Exception):  # noqa: N818 (it ends the search, and is no fault)
    """A limit is reached."""


@dataclass(slots=True)
class Search:
    """The state of the search; grows with each run."""

    run: Run
    limits: Limits
    texts: dict[str, str]
    """Every editable file, with the edits accepted in earlier rounds."""
    dynamo: Dynamo
    """From the last accepted run."""
    originals: dict[str, str] = field(default_factory=dict)
    rejected: list[tuple[Trial, str]] = field(default_factory=list)
    passed: list[tuple[Trial, dict[str, str]]] = field(default_factory=list)
    """With the texts before its round."""
    compared: str = ""
    runs: int = 0
    started: float = field(default_factory=time.monotonic)

    def attempt(self, trials: Sequence[Trial]) -> Attempt:
        spent = time.monotonic() - self.started
        if self.runs >= self.limits.runs or spent > self.limits.seconds:
            raise OutOfRuns
        self.runs += 1
        return self.run(self.changed(self.with_edits(trials)))

    def with_edits(self, trials: Sequence[Trial]) -> dict[str, str]:
        edits = tuple(dict.fromkeys(edit for trial in trials for edit in trial.candidate.edits))
        by_file = {file: [edit for edit in edits if edit.span.file == file] for file in self.texts}
        return {file: edited(text, by_file[file]) for file, text in self.texts.items()}

    def changed(self, texts: Texts) -> dict[str, str]:
        return {file: text for file, text in texts.items() if text != self.originals[file]}

    def accept(self, trials: Sequence[Trial], base: Sequence[Trial]) -> list[Trial]:
        """Return the trials that pass in addition to those accepted before."""
        if not trials:
            return []
        try:
            attempt = self.attempt([*base, *trials])
        except OutOfRuns:
            self.rejected += [(trial, "not tried: the limit of runs is reached") for trial in trials]
            return []
        reason = self.fault(attempt, trials)
        if not reason:
            gone = [trial for trial in trials if self.is_gone(trial.target, attempt.dynamo)]
            if len(gone) == len(trials):
                self.dynamo, self.compared = attempt.dynamo or self.dynamo, attempt.compared
                return list(trials)
            self.rejected += [
                (trial, "the problem that it should remove remains") for trial in trials if trial not in gone
            ]
            return self.accept(gone, base)
        if len(trials) == 1:
            self.rejected.append((trials[0], reason))
            return []
        middle = len(trials) // 2
        first = self.accept(trials[:middle], base)
        return [*first, *self.accept(trials[middle:], [*base, *first])]

    def fault(self, attempt: Attempt, trials: Sequence[Trial]) -> str:
        """Return why an attempt does not pass, apart from its targets; empty if it does."""
        if attempt.differs:
            return attempt.differs
        if attempt.is_masked and any(trial.candidate.changes_numbers for trial in trials):
            return "what the script prints differs from run to run, so it cannot be compared"
        before, after = cost_of(self.dynamo), cost_of(attempt.dynamo)
        if not after.compilations:
            return "nothing is compiled any more"
        new = set(targets(attempt.dynamo)) - set(targets(self.dynamo))
        if new and len(trials) > 1:
            return "something new is lost"  # single runs show which of them causes it
        if after.order < before.order:
            return ""
        if after.order == before.order and all(self.is_in_eager(trial.target) for trial in trials):
            return ""  # the code after it is reached for the first time
        return "no less is compiled with it"

    def is_in_eager(self, target: Target) -> bool:
        """Return True if the target prevented the rest of a function from being compiled."""
        return any(
            entry.text == target.name and entry.effect in ("rest in eager", "function in eager")
            for entry in self.dynamo.breaks
        )

    def is_gone(self, target: Target, dynamo: Dynamo | None) -> bool:
        counts, before = targets(dynamo), targets(self.dynamo)
        return counts.get(target, 0) < before.get(target, 0)


def find_fixes(run: Run, dynamo: Dynamo, texts: Texts, limits: Limits | None = None) -> SearchResult:
    """Try edits of these files until nothing is left to try, or a limit is reached."""
    search = Search(run, limits or Limits(), dict(texts), dynamo, dict(texts))
    for _ in range(search.limits.rounds):
        if not _round(search):
            break
    return _result(search, dynamo)


def _round(search: Search) -> bool:
    """Try the alternatives for all targets; return True if any passed."""
    known = {(trial.target, trial.candidate.title) for trial, _ in search.rejected}
    waiting = [
        replace(
            entry,
            candidates=tuple(
                proposal for proposal in entry.candidates if (entry.target, proposal.title) not in known
            ),
        )
        for entry in proposed(search.dynamo, search.texts)
    ]
    before = dict(search.texts)
    base: list[Trial] = []
    while waiting := [entry for entry in waiting if entry.candidates]:
        trials = _compatible(waiting, base)
        if not trials:
            break
        accepted = search.accept(trials, base)
        base += accepted
        fixed_targets = {trial.target for trial in accepted}
        tried = {trial.target for trial in trials}
        waiting = [
            replace(entry, candidates=entry.candidates[1:]) if entry.target in tried else entry
            for entry in waiting
            if entry.target not in fixed_targets
        ]
        if search.runs >= search.limits.runs:
            break
    search.texts = search.with_edits(base)
    search.passed += [(trial, before) for trial in base]
    return bool(base)


def _compatible(waiting: Sequence[Alternatives], base: Sequence[Trial]) -> list[Trial]:
    """Return the first candidate of each target, except those whose edits overlap."""
    edits = [edit for trial in base for edit in trial.candidate.edits]
    trials: list[Trial] = []
    for entry in waiting:
        candidate = entry.candidates[0]
        if not any(_overlap(edit, other) for edit in candidate.edits for other in edits):
            trials.append(Trial(entry.target, candidate))
            edits += candidate.edits
    return trials


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


def _result(search: Search, before: Dynamo) -> SearchResult:
    changed = search.changed(search.texts)
    fixes = []
    if search.passed:
        outcome = _outcome(search, before)
        first = search.passed[0][1]
        for trial, texts in search.passed:
            edits = trial.candidate.edits if texts == first else line_edits(search.originals, changed)
            fix = Fix(trial.candidate.title, edits)
            fixes.append(
                TriedFix(trial.candidate.kind, trial.target.function, trial.target.name, fix, outcome)
            )
    for trial, reason in search.rejected:
        fix = Fix(trial.candidate.title, trial.candidate.edits)
        fixes.append(
            TriedFix(trial.candidate.kind, trial.target.function, trial.target.name, fix, None, reason)
        )
    is_complete = not any("not tried" in reason for _, reason in search.rejected)
    originals = {file: search.originals[file] for file in changed}
    return SearchResult(tuple(fixes), changed, originals, search.runs, is_complete)


def _outcome(search: Search, before: Dynamo) -> FixOutcome:
    first, last = cost_of(before), cost_of(search.dynamo)
    caches = (*before.compile_seconds.caches, *search.dynamo.compile_seconds.caches)
    saved = before.compile_seconds.total - search.dynamo.compile_seconds.total
    return FixOutcome(
        first.breaks,
        last.breaks,
        first.compilations,
        last.compilations,
        None if any(entry.hits for entry in caches) else saved,
        search.compared,
        len(search.passed),
    )


def line_edits(before: Texts, after: Texts) -> tuple[Edit, ...]:
    """Return all changes as edits of whole lines, because later rounds edit the result of earlier ones."""
    edits = []
    for file, text in after.items():
        old, new = before[file].splitlines(keepends=True), text.splitlines(keepends=True)
        for tag, start, end, begin, stop in difflib.SequenceMatcher(
            None, old, new, autojunk=False
        ).get_opcodes():
            if tag != "equal":
                edits.append(Edit(Span(file, start + 1, 0, end + 1, 0), "".join(new[begin:stop])))
    return tuple(edits)
