"""Record what Dynamo leaves in eager while the script runs: graph breaks and skipped functions, with reasons.

Invariant: one record per expression, however often Dynamo meets it; the location is the user's own line, also
if Dynamo stops inside a library.  The facts come from the listener (`aotlens.dynamo`).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aotlens.capture.provenance.frames import is_user_file, user_qualname
from aotlens.dynamo.breaks import BreakFacts, is_limit
from aotlens.dynamo.listener import Listener
from aotlens.dynamo.records import dynamo_record, hint_at, reason_at
from aotlens.dynamo.skips import LAYER_OF_TORCH, skip_of
from aotlens.dynamo.spans import span_of, user_frame
from aotlens.model.dynamo import BreakEffect, Dynamo
from aotlens.model.eager import CODES, NotCompiled, NotCompiledCause
from aotlens.model.report import AFTER, Target
from aotlens.model.source import Span
from aotlens.torch_api.dynamo.events import DynamoLoss

__all__ = ["DynamoLog", "first_line", "limit_words", "reason_of"]

_LIMIT = re.compile(r"exceeding the (?P<name>\w+) .*?set to (?P<count>\d+)", re.DOTALL)
CAUSES: dict[BreakEffect, NotCompiledCause] = {
    "graph split": "graph break",
    "rest in eager": "rest of function",
    "function in eager": "whole function",
    "error": "whole function",
}


class DynamoLog:
    """Records while the script runs; mutable."""

    def __init__(self, time_guards: bool = False) -> None:
        self.listener = Listener(time_guards)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record what Dynamo does within the block."""
        with self.listener.listening():
            yield

    def dynamo(self, targets: Sequence[Target] = ()) -> Dynamo | None:
        """Return everything that Dynamo did, for the report; None if it compiled nothing."""
        return dynamo_record(self.listener, targets)

    @property
    def records(self) -> tuple[NotCompiled, ...]:
        """Return whole functions first, then rests of functions, then single expressions."""
        order: Sequence[NotCompiledCause] = (
            "whole function",
            "rest of function",
            "skipped",
            "recompile limit",
            "graph break",
        )
        records = [record for facts in self.listener.breaks if (record := _of_break(facts)) is not None]
        limits = filter(is_limit, self.listener.losses)
        records += dict.fromkeys(record for loss in limits if (record := self._of_limit(loss)) is not None)
        records += self.layers_without_effect()
        return tuple(sorted(records, key=lambda record: order.index(record.cause)))

    def _of_limit(self, loss: DynamoLoss) -> NotCompiled | None:
        index = user_frame(loss.frames)
        owner = user_qualname(loss.root.co_qualname, loss.root.co_filename)
        span = first_line(loss.root.co_filename, loss.root.co_firstlineno)
        if not is_user_file(loss.root.co_filename):
            if index is None:
                return None
            owner, span = self.listener.limited(loss.root), span_of(loss.frames[index])
        calls = self.listener.eager_calls(loss.root) or 0
        reason = (
            f"it has as many compilations as the limit allows ({limit_words(loss.message)}), and calls that"
            " need another graph run in eager; the value that recompiles it is the one to keep the same, or"
            " in a tensor"
        )
        code = CODES["recompile limit"]
        return NotCompiled(_short(owner), owner, "recompile limit", reason, code, span, calls)

    def layers_without_effect(self) -> Iterator[NotCompiled]:
        """Yield the layers of torch's own whose `compile()` was called, which compiles nothing."""
        words = skip_of(LAYER_OF_TORCH)
        for facts in self.listener.functions.values():
            for name, reason, span in facts.skipped:
                if reason == LAYER_OF_TORCH and words is not None:
                    why = f"{words.reason}; {words.hint}"
                    yield NotCompiled(name, name, "skipped", why, CODES["skipped"], span)


def _of_break(facts: BreakFacts) -> NotCompiled | None:
    cause, owner = CAUSES[facts.effect], facts.owner
    if not facts.is_users:
        if not facts.has_user_line or cause == "whole function":
            return None  # a layer of torch's own, which `not_compiled` names
        owner = facts.caller or owner
    return NotCompiled(_short(owner), owner, cause, reason_of(facts), CODES[cause], facts.span)


def reason_of(facts: BreakFacts) -> str:
    """Return why Dynamo stops at a break, and what to do."""
    return "; ".join(filter(None, (reason_at(facts), hint_at(facts))))


def limit_words(message: str) -> str:
    """Return the recompile limit of Dynamo's message, with the name of the setting."""
    match = _LIMIT.search(message)
    return f"{match['count']}, `torch._dynamo.config.{match['name']}`" if match else "Dynamo's"


def first_line(file: str, line: int) -> Span:
    """Return the span of a whole line, where the expression is unknown."""
    return Span(file, line, 0, line, 0)


def _short(owner: str) -> str:
    """Return `Net after line 7` for `Net.forward after line 7`, as targets are named."""
    function, after, line = owner.partition(AFTER)
    return function.removesuffix(".forward").rsplit(".", 1)[-1] + after + line
