"""What a search for fixes returns: each tried edit with its result, and the text that is written."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from aotlens.model.dynamo import Dynamo, FixOutcome, TriedFix
from aotlens.model.source import Edit, Span

__all__ = ["Cost", "SearchResult", "cost_of", "fix_outcome", "line_edits"]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The fixes, and the files with all written edits."""

    fixes: tuple[TriedFix, ...]
    """Those that passed first."""
    texts: dict[str, str]
    """Changed files only."""
    originals: dict[str, str]
    """The same files before the edits."""
    runs: int
    is_complete: bool
    """False if a limit left candidates untried."""
    together: FixOutcome | None = None
    """Of the run with all written edits; None if nothing is written."""


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


def fix_outcome(before: Dynamo, after: Dynamo, compared: str, together: int) -> FixOutcome:
    """Return the result of an edited run beside the unedited one."""
    first, last = cost_of(before), cost_of(after)
    caches = (*before.compile_seconds.caches, *after.compile_seconds.caches)
    saved = before.compile_seconds.total - after.compile_seconds.total
    return FixOutcome(
        first.breaks,
        last.breaks,
        first.compilations,
        last.compilations,
        None if any(entry.hits for entry in caches) else saved,
        compared,
        together,
    )


def line_edits(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Edit, ...]:
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
