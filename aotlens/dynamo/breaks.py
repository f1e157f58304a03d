"""Graph breaks: one record per expression, however often and in however many functions Dynamo encounters it.

Invariant: a break that Dynamo logs for each caller of an inlined function, and for the function itself, is
one break; its effect is the most severe that Dynamo logged.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

from aotlens.capture.provenance.frames import is_first_party_file, is_user_file, user_qualname
from aotlens.dynamo.break_messages import EFFECTS, break_code, message_parts
from aotlens.dynamo.spans import definition_at, expression_text, span_of, statement_span, user_frame
from aotlens.model.dynamo import BreakEffect
from aotlens.model.report import AFTER
from aotlens.model.source import Related, Span
from aotlens.torch_api.dynamo.events import DynamoLoss

__all__ = [
    "CAPTURED_WHOLE",
    "BreakFacts",
    "Breaks",
    "enclosing_qualname",
    "is_limit",
]

SEVERITY: tuple[BreakEffect, ...] = ("graph split", "error", "rest in eager", "function in eager")
"""The mildest first."""
CAPTURED_WHOLE = frozenset({"GB0124", "GB0036"})
"""Breaks that do not occur under `fullgraph=True`, which captures data-dependent numbers and sizes."""

GENERATOR = "GB0003"
"""A generator that Dynamo is asked to compile by itself."""


@dataclass(slots=True)
class BreakFacts:
    """Mutable: Dynamo may log a break repeatedly."""

    span: Span
    text: str
    code: str
    what: str
    """What Dynamo encountered, in its own words."""
    explanation: str
    hint: str
    effect: BreakEffect
    owner: str
    """The user's function, with `after line 7` for code that follows a break in it."""
    has_user_line: bool
    """Whether the stack contains a frame of the user's or of an installed package.

    Without one, only the call of the compiled layer can be reported.
    """
    is_users: bool
    """Whether the function that Dynamo was compiling is the user's."""
    caller: str
    """What a wrapper of torch's calls, else the function around the user's line; empty if unknown."""
    wrapped: dict[int, None]
    """What the wrapper called, by id: modules and functions of torch's own."""
    related: tuple[Related, ...] = ()
    splits: dict[str, None] = field(default_factory=dict)
    compilations: dict[str, None] = field(default_factory=dict)
    lines: dict[tuple[str, int], str] = field(default_factory=dict)
    """Where the functions that it splits resume: by file and line, the expression in each root."""


class Breaks:
    """Mutable: filled while the script runs."""

    def __init__(self) -> None:
        self._facts: dict[object, BreakFacts] = {}

    def __iter__(self) -> Iterator[BreakFacts]:
        return iter(self._facts.values())

    def text_at(self, file: str, line: int) -> str:
        """Return the expression after which a resume function continues, in a library or the user's code."""
        texts = (facts.lines[file, line] for facts in self._facts.values() if (file, line) in facts.lines)
        return next(texts, "")

    def add(self, loss: DynamoLoss, wrapped: str = "", wrapped_id: int | None = None) -> None:
        """Record a break; a known break is updated.

        `wrapped` is the name of what a wrapper of torch's calls, if Dynamo was compiling one.
        """
        facts = _facts(loss, wrapped)
        facts.wrapped |= {} if wrapped_id is None else {wrapped_id: None}
        in_eager = self._eager_caller(loss)
        if in_eager is not None:
            in_eager.compilations |= facts.compilations
            return
        known = self._cause_of(facts) or self._facts.setdefault((facts.span, facts.code or facts.what), facts)
        known.compilations |= facts.compilations
        known.lines |= facts.lines
        known.wrapped |= facts.wrapped
        if known.is_users and not facts.is_users:
            return  # torch's own code that the expression runs
        known.related = tuple(dict.fromkeys((*known.related, *facts.related)))
        if SEVERITY.index(facts.effect) > SEVERITY.index(known.effect):
            known.effect = facts.effect
        known.splits |= facts.splits

    def _eager_caller(self, loss: DynamoLoss) -> BreakFacts | None:
        """Return the break that left the caller of a generator in eager.

        Dynamo inlines a generator where it compiles the caller, so it is no break of its own.
        """
        if break_code(loss.message) != GENERATOR:
            return None
        frames = [frame for frame in reversed(loss.frames) if is_user_file(frame.filename)]
        if not frames:
            return None
        caller = definition_at(frames[0].filename, frames[0].lineno or 0)
        return next(
            (
                known
                for known in self._facts.values()
                if known.effect in ("rest in eager", "function in eager")
                and any(definition_at(file, line) == caller for file, line in known.lines)
            ),
            None,
        )

    def _cause_of(self, facts: BreakFacts) -> BreakFacts | None:
        """Return the break of which this one is a consequence.

        At its expression a library runs code that Dynamo skips too, or the compilation cannot continue.
        """
        is_of_library = not facts.is_users and facts.effect == "function in eager"
        return next(
            (
                known
                for known in self._facts.values()
                if known.span == facts.span
                and (is_of_library or known.compilations.keys() & facts.compilations)
            ),
            None,
        )


def is_limit(loss: DynamoLoss) -> bool:
    """Return True if the function exceeded the recompile limit, which is not a break."""
    return loss.effect is None and "recompile_limit" in loss.message


def _facts(loss: DynamoLoss, wrapped: str) -> BreakFacts:
    """Describe a graph break: the user's expression, the cause, the hint, and what runs in eager."""
    index = user_frame(loss.frames)
    owner = wrapped or user_qualname(loss.root.co_qualname, loss.root.co_filename)
    what, explanation, hint = message_parts(loss.message)
    span, related = _spans(loss, index)
    return BreakFacts(
        span=span,
        text=expression_text(span),
        code=break_code(loss.message),
        what=what,
        explanation=explanation,
        hint=hint,
        effect="error" if loss.is_error else _effect(loss),
        owner=owner,
        has_user_line=index is not None,
        is_users=is_user_file(loss.root.co_filename),
        caller=wrapped or ("" if index is None else loss.frames[index].name),
        wrapped={},
        related=related,
        splits=dict.fromkeys([owner.partition(AFTER)[0]]),
        compilations=dict.fromkeys([loss.compile_id] if loss.compile_id else []),
        lines=_lines(loss),
    )


def _spans(loss: DynamoLoss, index: int | None) -> tuple[Span, tuple[Related, ...]]:
    """Return the user's expression, and the line below it where Dynamo stops; `index` is the user's frame.

    A function that Dynamo gives up before it traces a line is reported as a whole.
    """
    is_untraced = loss.effect is None and not loss.is_error and not _traces(loss)
    if index is None or (is_untraced and is_first_party_file(loss.root.co_filename)):
        return _whole_function(loss), ()
    span, below = span_of(loss.frames[index]), loss.frames[-1]
    if is_untraced:
        return span, (Related(_whole_function(loss), f"Dynamo gives `{loss.root.co_name}` up"),)
    if below is loss.frames[index]:
        return span, ()
    name = user_qualname(below.name, below.filename).partition(AFTER)[0]
    return span, (Related(span_of(below), f"Dynamo stops here, in `{name}`"),)


def _whole_function(loss: DynamoLoss) -> Span:
    return statement_span(loss.root.co_filename, loss.root.co_firstlineno)


def _traces(loss: DynamoLoss) -> bool:
    """Return True if Dynamo had begun to trace the function, so that the stack contains a frame of it."""
    return any(
        frame.filename == loss.root.co_filename and _is_in(frame.lineno, loss.root) for frame in loss.frames
    )


def _is_in(line: int | None, code: CodeType) -> bool:
    lines = [number for _, _, number in code.co_lines() if number is not None]
    return bool(lines) and line is not None and min(lines) <= line <= max(lines)


def _effect(loss: DynamoLoss) -> BreakEffect:
    if loss.effect is None:
        return "function in eager"
    return next((effect for words, effect in EFFECTS if loss.effect.startswith(words)), "graph split")


def _lines(loss: DynamoLoss) -> dict[tuple[str, int], str]:
    """Return the line at which the root function is split, and the expression there."""
    roots = [frame for frame in loss.frames if frame.filename == loss.root.co_filename and frame.lineno]
    inside = [frame for frame in roots if _is_in(frame.lineno, loss.root)]
    return {(frame.filename, frame.lineno or 0): expression_text(span_of(frame)) for frame in inside[-1:]}


def enclosing_qualname(facts: BreakFacts) -> str | None:
    """Return the function around the expression; None at module level."""
    definition = definition_at(facts.span.file, facts.span.line)
    return definition.qualname if definition is not None and is_user_file(facts.span.file) else None
