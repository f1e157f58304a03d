"""Which line of one trace's source is which line of another's, by what the lines say.

Invariant: standard library only, and no source file is read: what the lines said when they were traced stands
in the programs' text.  Comments, blanks and numbers of lines make no difference.
"""

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from aotlens.compare.alignment import aligned
from aotlens.model.report import Span, Target
from aotlens.view.program_text import node_texts

__all__ = ["Line", "LinePairs", "pair_lines"]

SHOWN = frozenset({"captured", "forward", "backward", "inference"})
"""Stages whose texts have every line between them."""
_ALIKE = 0.6
"""From which share of equal characters on a line counts as edited rather than as another one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's."""

    file: str
    number: int
    text: str
    """Without its comment; empty where no program shows it."""


@dataclass(frozen=True, slots=True)
class LinePairs:
    """The lines of an old trace and of a new one; a pair has one key."""

    old: dict[tuple[str, int], Line]
    new: dict[tuple[str, int], Line]
    partner: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """By line of the new trace: its line of the old one."""

    def of_old(self, span: Span | None) -> object:
        """A key that the two lines of a pair share; None where there is no line."""
        return None if span is None else ("old", span.file, span.line)

    def of_new(self, span: Span | None) -> object:
        if span is None:
            return None
        partner = self.partner.get((span.file, span.line))
        return ("old", *partner) if partner is not None else ("new", span.file, span.line)

    def line(self, key: object) -> tuple[Line | None, Line | None]:
        """The two lines of a key."""
        assert isinstance(key, tuple)
        side, place = key[0], (key[1], key[2])
        if side == "new":
            return None, self.new.get(place) or Line(*place, "")
        other = next((new for new, old in self.partner.items() if old == place), None)
        return self.old.get(place) or Line(*place, ""), self.new.get(other) if other is not None else None


def pair_lines(old: Target, new: Target) -> LinePairs:
    """The lines that two traces of a target name, paired."""
    pairs = LinePairs(_lines(old), _lines(new))
    files = _paired_files({file for file, _ in pairs.old}, {file for file, _ in pairs.new})
    for new_file, old_file in files.items():
        before = sorted((one for one in pairs.old.values() if one.file == old_file), key=_number)
        after = sorted((one for one in pairs.new.values() if one.file == new_file), key=_number)
        for one, other in _paired(before, after):
            pairs.partner[other.file, other.number] = (one.file, one.number)
    return pairs


def _number(line: Line) -> int:
    return line.number


def _lines(target: Target) -> dict[tuple[str, int], Line]:
    """Every line that a trace names, with its text where a program shows it."""
    found: dict[tuple[str, int], Line] = {}
    for span in _spans(target):
        found.setdefault((span.file, span.line), Line(span.file, span.line, ""))
    for stage in target.stages:
        texts = node_texts(stage) if stage.name in SHOWN else {}
        for node in stage.nodes if texts else ():
            text, at = texts.get(node.name), node.spans[0] if node.spans else None
            if text is not None and at is not None and text.number == at.line:
                found[at.file, at.line] = Line(at.file, at.line, text.line)
    return found


def _spans(target: Target) -> Iterator[Span]:
    sites = [site for row in target.inputs for site in row.sites]
    sites += [site for row in target.outputs for site in row.sites]
    sites += [site for step in (target.wrapper.steps if target.wrapper else ()) for site in step.sites]
    yield from (site.span for site in sites)
    yield from (span for stage in target.stages for node in stage.nodes for span in node.spans[:1])
    yield from (one.span for one in target.diagnostics if one.span is not None)
    yield from (span for kernel in target.kernels for span in kernel.spans)
    if target.partition is not None:
        yield from (saved.span for saved in target.partition.saved if saved.span is not None)
    if target.memory is not None:
        yield from (live.span for live in target.memory.live_at_peak if live.span is not None)
    if target.span is not None:
        yield target.span


def _paired_files(old: set[str], new: set[str]) -> dict[str, str]:
    """By new file: the old one that ends in the most of the same folders, or is left alone; each once."""
    found: dict[str, str] = {}
    free = set(old)
    alike = ((_common_end(one, other), other, one) for one in old for other in new)
    for count, other, one in sorted(alike, key=lambda row: (-row[0], row[1], row[2])):
        if count and other not in found and one in free:
            found[other] = one
            free.discard(one)
    rest = new - set(found)
    return found | dict(zip(rest, free, strict=True)) if len(rest) == len(free) == 1 else found


def _common_end(one: str, other: str) -> int:
    names = zip(reversed(one.split(os.sep)), reversed(other.split(os.sep)), strict=False)
    return next(
        (at for at, (a, b) in enumerate(names) if a != b), min(one.count(os.sep), other.count(os.sep)) + 1
    )


def _paired(old: list[Line], new: list[Line]) -> Iterator[tuple[Line, Line]]:
    """Equal lines in order; between them, lines that are alike."""
    equal = aligned([_said(one) for one in old], [_said(one) for one in new])
    at, other_at = 0, 0
    for one, other in [*equal, (len(old), len(new))]:
        yield from _alike(old[at:one], new[other_at:other])
        if one < len(old):
            yield old[one], new[other]
        at, other_at = one + 1, other + 1


def _said(line: Line) -> object:
    """Its text; a line that no program shows is like no other but the one of its number."""
    return line.text or line.number


def _alike(old: list[Line], new: list[Line]) -> Iterator[tuple[Line, Line]]:
    rest = list(old)
    for line in new:
        for one in rest:
            if _is_alike(one, line, alone=len(old) == len(new) == 1):
                yield one, line
                rest = rest[rest.index(one) + 1 :]
                break


def _is_alike(old: Line, new: Line, alone: bool) -> bool:
    if not old.text or not new.text:
        return alone and old.text == new.text
    return difflib.SequenceMatcher(None, old.text, new.text).ratio() >= _ALIKE
