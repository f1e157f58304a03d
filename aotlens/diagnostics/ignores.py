"""Comments that hide findings of a line: `# aotlens: ignore[AL301]`.

Invariant: standard library only. A comment covers its statement, however many lines that has; one on lines of
its own covers the statement below. A text that does not parse has no such comments.
"""

import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotlens.diagnostics.rules import RULES, near_codes
from aotlens.model.report import Diagnostic, Span

__all__ = ["Ignore", "covers", "known_prefix", "parse_ignores", "unknown_codes", "unused"]

_COMMENT = re.compile(r"#\s*aotlens:\s*ignore\b(?:\[(?P<codes>[^\]]*)\])?")
_NOTHING = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment, with the lines of the statement that it covers."""

    span: Span
    codes: tuple[str, ...]
    """Codes, or how they start (`AL3`); empty for all."""
    first: int
    last: int


def parse_ignores(source: str, file: str) -> tuple[Ignore, ...]:
    """Return the comments of a file, in order."""
    if not _COMMENT.search(source):  # most files; they are not tokenised
        return ()
    try:
        return tuple(_parse(source, file))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return ()


def covers(ignore: Ignore, diagnostic: Diagnostic) -> bool:
    """Return True if the finding is in the statement, and has one of the codes."""
    span = diagnostic.span
    inside = span is not None and ignore.first <= span.line <= ignore.last
    return inside and (not ignore.codes or diagnostic.code.startswith(ignore.codes))


def unused(ignore: Ignore, codes: Sequence[str]) -> Diagnostic:
    """Return AL804: the comment, or some of its codes, hid nothing."""
    what = f"no {' or '.join(codes)} here" if codes else "no finding here"
    return Diagnostic("AL804", "warning", f"unused `aotlens: ignore`: {what}; remove it", ignore.span)


def unknown_codes(ignore: Ignore) -> Iterator[Diagnostic]:
    """Yield AL804: a code in the comment does not exist."""
    for code in ignore.codes:
        if not known_prefix(code):
            message = f"`aotlens: ignore[{code}]` names no diagnostic; there is {near_codes(code)}"
            yield Diagnostic("AL804", "warning", message, ignore.span)


def known_prefix(code: str) -> bool:
    """Return True for a code, or the start of a code."""
    return bool(code) and any(rule.code.startswith(code) for rule in RULES)


def _parse(source: str, file: str) -> Iterator[Ignore]:
    waiting: list[tuple[Span, tuple[str, ...]]] = []
    first: int | None = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            waiting += _read(token, file)
        elif token.type == tokenize.NEWLINE and first is not None:
            for span, codes in waiting:
                yield Ignore(span, codes, first, token.start[0])
            waiting, first = [], None
        elif first is None and token.type not in _NOTHING:
            first = token.start[0]


def _read(token: tokenize.TokenInfo, file: str) -> list[tuple[Span, tuple[str, ...]]]:
    match = _COMMENT.search(token.string)
    if match is None:
        return []
    line, start = token.start
    col = len(token.line[: start + match.start()].encode())
    span = Span(file, line, col, line, col + len(match.group().encode()))
    codes = tuple(code.strip().upper() for code in (match["codes"] or "").split(",") if code.strip())
    return [(span, codes)]
