"""Pairs the source lines of two traces by their text.

Invariant: standard library only, and no source file is read: the text of the traced lines is in the programs.
Comments, blanks and line numbers make no difference.
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
"""Stages whose texts together have every line."""
_ALIKE = 0.6
"""From which share of equal characters on a line counts as edited rather than as another one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's."""

    file: str
    number: int
    text: str
    """The text without its comment; empty where no program shows it."""


@dataclass(frozen=True, slots=True)
class LinePairs:
    """The lines of an old trace and of a new one; the two lines of a pair share a key."""

    old: dict[tuple[str, int], Line]
    new: dict[tuple[str, int], Line]
    partner: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """By line of the new trace: its line of the old one."""

    def of_old(self, span: Span | None) -> object:
        """Return a key that the two lines of a pair share; None where there is no line."""
        return None if span is None else ("old", span.file, span.line)

    def of_new(self, span: Span | None) -> object:
        if span is None:
            return None
        partner = self.partner.get((span.file, span.line))
        return ("old", *partner) if partner is not None else ("new", span.file, span.line)

    def line(self, key: object) -> tuple[Line | None, Line | None]:
        """Return the two lines of a key."""
        assert isinstance(key, tuple)
        side, position = key[0], (key[1], key[2])
        if side == "new":
            return None, self.new.get(position) or Line(*position, "")
        other = next((new for new, old in self.partner.items() if old == position), None)
        return self.old.get(position) or Line(*position, ""), self.new.get(
            other
        ) if other is not None else None


def pair_lines(old: Target, new: Target) -> LinePairs:
    """Return the lines that two traces of a target name, paired."""
    pairs = LinePairs(_lines(old), _lines(new))
    files = _paired_files({file for file, _ in pairs.old}, {file for file, _ in pairs.new})
    for new_file, old_file in files.items():
        before = sorted((line for line in pairs.old.values() if line.file == old_file), key=_number)
        after = sorted((line for line in pairs.new.values() if line.file == new_file), key=_number)
        for line, counterpart in _paired(before, after):
            pairs.partner[counterpart.file, counterpart.number] = (line.file, line.number)
    return pairs


def _number(line: Line) -> int:
    return line.number


def _lines(target: Target) -> dict[tuple[str, int], Line]:
    """Return every line that a trace names, with its text where a program shows it."""
    lines: dict[tuple[str, int], Line] = {}
    for span in _spans(target):
        lines.setdefault((span.file, span.line), Line(span.file, span.line, ""))
    for stage in target.stages:
        texts = node_texts(stage) if stage.name in SHOWN else {}
        for node in stage.nodes if texts else ():
            text, location = texts.get(node.name), node.spans[0] if node.spans else None
            if text is not None and location is not None and text.number == location.line:
                lines[location.file, location.line] = Line(location.file, location.line, text.line)
    return lines


def _spans(target: Target) -> Iterator[Span]:
    sites = [site for row in target.inputs for site in row.sites]
    sites += [site for row in target.outputs for site in row.sites]
    sites += [site for step in (target.wrapper.steps if target.wrapper else ()) for site in step.sites]
    yield from (site.span for site in sites)
    yield from (span for stage in target.stages for node in stage.nodes for span in node.spans[:1])
    yield from (diagnostic.span for diagnostic in target.diagnostics if diagnostic.span is not None)
    yield from (span for kernel in target.kernels for span in kernel.spans)
    if target.partition is not None:
        yield from (saved.span for saved in target.partition.saved if saved.span is not None)
    if target.memory is not None:
        yield from (live.span for live in target.memory.live_at_peak if live.span is not None)
    if target.span is not None:
        yield target.span


def _paired_files(old: set[str], new: set[str]) -> dict[str, str]:
    """Return by new file the old one with the most equal last folders, or the only one left; each once."""
    paired: dict[str, str] = {}
    free = set(old)
    alike = ((_common_end(old_file, new_file), new_file, old_file) for old_file in old for new_file in new)
    for count, new_file, old_file in sorted(alike, key=lambda row: (-row[0], row[1], row[2])):
        if count and new_file not in paired and old_file in free:
            paired[new_file] = old_file
            free.discard(old_file)
    rest = new - set(paired)
    return paired | dict(zip(rest, free, strict=True)) if len(rest) == len(free) == 1 else paired


def _common_end(first: str, second: str) -> int:
    names = zip(reversed(first.split(os.sep)), reversed(second.split(os.sep)), strict=False)
    return next(
        (index for index, (a, b) in enumerate(names) if a != b),
        min(first.count(os.sep), second.count(os.sep)) + 1,
    )


def _paired(old: list[Line], new: list[Line]) -> Iterator[tuple[Line, Line]]:
    """Equal lines in order; between them, lines that are alike."""
    equal = aligned([_text_key(line) for line in old], [_text_key(line) for line in new])
    old_start, new_start = 0, 0
    for old_end, new_end in [*equal, (len(old), len(new))]:
        yield from _similar_lines(old[old_start:old_end], new[new_start:new_end])
        if old_end < len(old):
            yield old[old_end], new[new_end]
        old_start, new_start = old_end + 1, new_end + 1


def _text_key(line: Line) -> object:
    """Its text; a line that no program shows is like no other but the one of its number."""
    return line.text or line.number


def _similar_lines(old: list[Line], new: list[Line]) -> Iterator[tuple[Line, Line]]:
    rest = list(old)
    for line in new:
        for candidate in rest:
            if _is_similar(candidate, line, alone=len(old) == len(new) == 1):
                yield candidate, line
                rest = rest[rest.index(candidate) + 1 :]
                break


def _is_similar(old: Line, new: Line, alone: bool) -> bool:
    if not old.text or not new.text:
        return alone and old.text == new.text
    return difflib.SequenceMatcher(None, old.text, new.text).ratio() >= _ALIKE
