"""The record of one edit that may lower the peak, and what the rules read to propose it.

Invariant: a proposal is text that parses; whether it lowers the peak, and whether the training stays the
same, is found out by running it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aotlens.fit.advice.jobs import NameFact
from aotlens.fit.advice.step import TrainingStep
from aotlens.fixes.source import Source
from aotlens.model.fit import Fit, FitPhase
from aotlens.model.source import Edit

__all__ = ["Proposal", "Rule", "Site", "add_import", "add_keywords", "proposal"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """One edit."""

    kind: str
    group: str
    """What it changes; of one group at most one proposal is made at a time."""
    title: str
    """One sentence, imperative."""
    edits: tuple[Edit, ...]
    is_exact: bool = True
    """Whether the training is expected to be the same but for rounding in the tensors' own dtype."""
    phases: tuple[FitPhase, ...] = ()
    """The phases whose peak it may lower; empty for any."""
    series: str = ""
    """Shared by proposals of increasing strength: after one that fails, the stronger ones are skipped."""

    @property
    def identity(self) -> tuple[str, str]:
        """Return the group and the title, which are the same in an edited copy of the script."""
        return self.group, self.title


@dataclass(frozen=True, slots=True)
class Site:
    """A training script, as the rules read it."""

    sources: Mapping[str, Source]
    """The user's files by path."""
    step: TrainingStep | None
    """None if no line of these files calls a backward."""
    names: Mapping[str, NameFact]
    """The tensors, modules and optimizers at the first backward."""
    fit: Fit
    """Of the script without edits."""
    is_edited: bool = False
    """Whether the texts have edits, so that the lines of `fit` are others."""
    has_eight_bit: bool = False
    """Whether the script can import Adam with 8-bit state."""


Rule = Callable[[Site], Iterator[Proposal | None]]


def proposal(kind: str, group: str, title: str, *edits: Edit | None) -> Proposal | None:
    """Return an exact proposal; None if one of the edits is impossible."""
    possible = tuple(dict.fromkeys(edit for edit in edits if edit is not None))
    if not possible or any(edit is None for edit in edits):
        return None
    return Proposal(kind, group, title, possible)


def add_import(source: Source, line: str) -> tuple[Edit, ...]:
    """Return the edit that adds an import after the others; none if the file has it."""
    if line in (text.strip() for text in source.text.splitlines()):
        return ()
    edit = source.after_imports(line)
    return () if edit is None else (Edit(edit.span, edit.text.lstrip("\n")),)


def add_keywords(call: str, keywords: Mapping[str, str]) -> str:
    """Return the text of a call with more keywords at its end."""
    inside = call.rstrip()[:-1].rstrip()
    separator = "" if inside.endswith("(") else " " if inside.endswith(",") else ", "
    return f"{inside}{separator}{', '.join(f'{name}={value}' for name, value in keywords.items())})"
