"""Find logged lines in the current version of a file.

Invariant: a line never maps to another text than the logged one.  If the text occurs several times, the lines
around it, or its function, must leave one choice.

| state | the file here |
|---|---|
| `same` | has the logged text at the logged line |
| `moved` | has it on another line |
| `changed` | does not have it, or not in one clear place |
| `missing` | is not here |
| `unchecked` | may be the same: the log has no text of the line |
"""

import ast
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from aotlens.trace.graphs.records import Line

__all__ = ["LineState", "Located", "current_lines", "relocate"]

LineState = Literal["same", "moved", "changed", "missing", "unchecked"]


@dataclass(frozen=True, slots=True)
class Located:
    """The current position of a logged line."""

    line: int
    """The logged number unless the line is `moved`."""
    state: LineState


def relocate(text: str, logged: Iterable[Line]) -> dict[Line, Located]:
    """Find each logged line of one file in the file's current text."""
    lines = [line.strip() for line in text.splitlines()]
    wanted = sorted(set(logged), key=lambda line: line.line)
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, code in enumerate(lines, start=1):
        numbers[code].append(number)
    located: dict[Line, Located] = {}
    repeated: list[tuple[Line, list[int]]] = []
    for line in wanted:
        code = line.code.strip()
        candidates = numbers.get(code, []) if code else []
        if not code:
            starts = [lines.start for lines in _functions(text).get(line.function.rpartition(".")[2], [])]
            if line.line in starts:
                located[line] = Located(line.line, "unchecked")
            else:
                repeated.append((line, starts))
        elif 1 <= line.line <= len(lines) and lines[line.line - 1] == code:
            located[line] = Located(line.line, "same")
        elif len(candidates) == 1:
            located[line] = Located(candidates[0], "moved")
        else:
            repeated.append((line, candidates))
    anchors = {
        line.line: location.line for line, location in located.items() if location.state in ("same", "moved")
    }
    for line, candidates in repeated:
        inside = _in_function(text, line, candidates) if line.code.strip() else candidates
        located[line] = _choose(line, inside, anchors)
    return located


def current_lines(stale: Iterable[Line], current: Sequence[Line]) -> dict[Line, Line | None]:
    """Return the current line with the same text for lines that may be another file's; None if unclear.

    A cache hit prints graphs with the lines of the file that first filled the cache.  Dynamo's graph of the
    same compilation has the current ones, and the text connects the two.
    """
    fresh = set(current)
    by_text: dict[str, set[Line]] = defaultdict(set)
    for line in fresh:
        by_text[line.code.strip()].add(line)
    joined: dict[Line, Line | None] = {}
    for line in stale:
        candidates = by_text.get(line.code.strip(), set()) if line.code.strip() else set()
        of_function = {candidate for candidate in candidates if candidate.function == line.function}
        choice = of_function if len(candidates) > 1 else candidates
        joined[line] = line if line in fresh else next(iter(choice)) if len(choice) == 1 else None
    return joined


def _choose(line: Line, candidates: Sequence[int], anchors: Mapping[int, int]) -> Located:
    """Return the candidate that moved as far as the nearest certain line."""
    if len(candidates) == 1:
        return Located(candidates[0], "moved")
    if candidates and anchors:
        nearest = min(anchors, key=lambda number: abs(number - line.line))
        shifted = line.line + anchors[nearest] - nearest
        if shifted in candidates:
            return Located(shifted, "moved")
    if line.code.strip() or not anchors:
        return Located(line.line, "changed" if line.code.strip() else "unchecked")
    nearest = min(anchors, key=lambda number: abs(number - line.line))
    return Located(line.line + anchors[nearest] - nearest, "unchecked")


def _in_function(text: str, line: Line, candidates: Sequence[int]) -> Sequence[int]:
    """Return the candidates in a function of the logged name, if there is one."""
    if len(candidates) < 2:
        return candidates
    ranges = _functions(text).get(line.function, ())
    return [number for number in candidates if any(number in lines for lines in ranges)] or candidates


@lru_cache(maxsize=64)
def _functions(text: str) -> dict[str, list[range]]:
    """Return the lines of each function by name, decorators included."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    ranges: dict[str, list[range]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min((decorator.lineno for decorator in node.decorator_list), default=node.lineno)
            ranges[node.name].append(range(first, (node.end_lineno or node.lineno) + 1))
    return ranges
