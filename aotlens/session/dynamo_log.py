"""What Dynamo left in eager while the script ran: graph breaks, functions that it gave up, and why.

Invariant: one record per expression, however often Dynamo meets it again; the place is the user's own line,
also where Dynamo stops inside of a library.
"""

import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType

from aotlens.capture.frames import is_own_file, is_user_file
from aotlens.capture.resumed import user_qualname
from aotlens.report.eager_records import CODES, NotCompiled, NotCompiledCause
from aotlens.report.source_records import Span
from aotlens.torch_api import DynamoLoss, reporting_dynamo_losses

__all__ = ["DynamoLog", "first_line", "sentence"]

EFFECTS: tuple[tuple[str, NotCompiledCause], ...] = (
    ("Failed to handle graph break gracefully", "whole function"),
    ("Encountered graph break that we cannot resume from", "rest of function"),
)
"""How Dynamo's reason begins, and what it then leaves in eager; any other break is resumed from."""
_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)
_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)


class DynamoLog:
    """Mutable: filled while the script runs."""

    def __init__(self) -> None:
        self._records: dict[object, NotCompiled] = {}
        self.seen: set[tuple[str, int]] = set()
        """File and first line of every function that Dynamo looked at."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note what Dynamo leaves in eager within the block."""
        with reporting_dynamo_losses(self._add, self._see):
            yield

    def _see(self, code: CodeType) -> None:
        self.seen.add((code.co_filename, code.co_firstlineno))

    @property
    def records(self) -> tuple[NotCompiled, ...]:
        """Whole functions first, then the rests of functions, then single expressions."""
        order: Sequence[NotCompiledCause] = (
            "whole function",
            "rest of function",
            "recompile limit",
            "graph break",
        )
        return tuple(sorted(self._records.values(), key=lambda record: order.index(record.cause)))

    def _add(self, loss: DynamoLoss) -> None:
        frame, cause = _user_frame(loss), _cause(loss)
        span = None if frame is None else _span(frame)
        owner = user_qualname(loss.root.co_qualname, loss.root.co_filename)
        if not is_user_file(loss.root.co_filename):
            if frame is None or cause == "whole function":
                return  # a layer of torch's own, which `not_compiled` names
            owner = frame.name or owner
        reason = sentence(loss.message)
        key = (span or loss.root, reason.partition(" (")[0])
        known = self._records.get(key)
        if known is not None and known.cause != "graph break":
            return
        if known is not None:  # met again, in a caller or with more of the function lost
            self._records[key] = replace(known, cause=cause)
            return
        name = _short(owner)
        span = span or first_line(loss.root.co_filename, loss.root.co_firstlineno)
        self._records[key] = NotCompiled(name, owner, cause, reason, CODES[cause], span)


def _cause(loss: DynamoLoss) -> NotCompiledCause:
    if loss.effect is None:  # given up outside of tracing
        return "recompile limit" if "recompile_limit" in loss.message else "whole function"
    return next((cause for words, cause in EFFECTS if loss.effect.startswith(words)), "graph break")


def _user_frame(loss: DynamoLoss) -> traceback.FrameSummary | None:
    """The innermost expression in a file of the user's own, else in any that is not torch's."""
    frames = list(reversed(loss.frames))
    own = next((frame for frame in frames if is_own_file(frame.filename)), None)
    return own or next((frame for frame in frames if is_user_file(frame.filename)), None)


def _span(frame: traceback.FrameSummary) -> Span:
    line = frame.lineno or 1
    if frame.colno is None or frame.end_colno is None:
        return first_line(frame.filename, line)
    return Span(frame.filename, line, frame.colno, frame.end_lineno or line, frame.end_colno)


def first_line(file: str, line: int) -> Span:
    """A whole line, where nothing tells the expression."""
    return Span(file, line, 0, line, 0)


def sentence(message: str) -> str:
    """Dynamo's words: what it met, why, and its first hint."""
    what = message.strip().partition("\n")[0].rstrip(".")
    explanation, hint = _EXPLANATION.search(message), _HINT.search(message)
    why = f" ({explanation[1].rstrip('.')})" if explanation else ""
    return what + why + (f"; {hint[1].rstrip('.')}" if hint else "")


def _short(owner: str) -> str:
    """`Net.forward after line 7` is called `Net after line 7`, as targets are."""
    function, after, line = owner.partition(" after ")
    return function.removesuffix(".forward").rsplit(".", 1)[-1] + after + line
