"""Candidates for removing a graph break or a recompilation, in the order in which they are tried.

Invariant: one target has one entry, and every candidate is text that parses; `search` finds out which ones
work.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from aotlens.fixes.source import Source
from aotlens.model.dynamo import Break, Dynamo, DynamoFunction
from aotlens.model.source import Edit
from aotlens.model.spans import is_users_own
from aotlens.view.recompiled_values import RecompiledValue, recompiled_values

__all__ = ["Alternatives", "BreakSite", "Candidate", "Target", "ValueSite"]


@dataclass(frozen=True, slots=True)
class Target:
    """A graph break or recompiling value, identified again in the report of an edited copy."""

    kind: Literal["break", "value"]
    function: str
    """Its qualified name."""
    name: str
    """The expression of a break, or the name of a value."""
    detail: str
    """torch's number of a break, or the kind of a recompilation."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to remove a target."""

    kind: str
    title: str
    """One sentence, imperative."""
    edits: tuple[Edit, ...]
    changes_numbers: bool = False
    """Whether the edit itself changes a result of the script, such as a time."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The candidates for one target, the best first."""

    target: Target
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class BreakSite:
    """A graph break in a source file."""

    source: Source
    function: DynamoFunction
    entry: Break


@dataclass(frozen=True, slots=True)
class ValueSite:
    """A value that recompiles, and the files that may define it."""

    source: Source
    """The file of the compiled function."""
    function: DynamoFunction
    value: RecompiledValue
    sources: Mapping[str, Source]


BreakRule = Callable[[BreakSite], Iterator[Candidate | None]]
ValueRule = Callable[[ValueSite], Iterator[Candidate | None]]


def break_target(function: DynamoFunction, entry: Break) -> Target:
    return Target("break", function.qualname, entry.text, entry.code)


def value_target(function: DynamoFunction, value: RecompiledValue) -> Target:
    return Target("value", function.qualname, value.name, value.kind)


def targets(dynamo: Dynamo | None) -> dict[Target, int]:
    """Return every break and recompiling value, with the number of recompilations that it causes."""
    counts: dict[Target, int] = {}
    for function in dynamo.functions if dynamo is not None else ():
        for entry in function.breaks:
            target = break_target(function, entry)
            counts[target] = counts.get(target, 0) + 1
        for value in recompiled_values(function):
            counts[value_target(function, value)] = len(value.compilations)
    return counts


def files_of(dynamo: Dynamo) -> tuple[str, ...]:
    """Return the user's own files that contain a target."""
    spans = [function.span for function in dynamo.functions]
    spans += [entry.span for entry in dynamo.breaks]
    return tuple(dict.fromkeys(span.file for span in spans if is_users_own(span.file)))


def alternatives(
    dynamo: Dynamo,
    sources: Mapping[str, Source],
    break_rules: tuple[BreakRule, ...],
    value_rules: tuple[ValueRule, ...],
) -> Iterator[Alternatives]:
    """Yield the targets for which there is at least one candidate."""
    for function in dynamo.functions:
        for entry in function.breaks:
            source = sources.get(entry.span.file)
            if source is not None:
                site = BreakSite(source, function, entry)
                yield from _listed(
                    break_target(function, entry),
                    (proposal for rule in break_rules for proposal in rule(site)),
                )
        source = sources.get(function.span.file)
        for value in recompiled_values(function) if source is not None else ():
            assert source is not None
            value_site = ValueSite(source, function, value, sources)
            yield from _listed(
                value_target(function, value),
                (proposal for rule in value_rules for proposal in rule(value_site)),
            )


def _listed(target: Target, candidates: Iterator[Candidate | None]) -> Iterator[Alternatives]:
    known = tuple(
        dict.fromkeys(proposal for proposal in candidates if proposal is not None and proposal.edits)
    )
    if known:
        yield Alternatives(target, known)


def candidate(kind: str, title: str, *edits: Edit | None) -> Candidate | None:
    """Return a candidate; None if one of the edits is impossible."""
    possible = tuple(edit for edit in edits if edit is not None)
    return Candidate(kind, title, possible) if len(possible) == len(edits) else None
