"""Several verdicts of one command: their order, their words, the exit code. Standard library only.

Invariant: only `equal` counts as success; all others are printed first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aotlens.model.source import Outcome, Verdict

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.eager import NotCompiled, NotCompiledCause

__all__ = ["STYLES", "WORST_FIRST", "exit_code_of", "verdict_of"]

WORST_FIRST: tuple[Outcome, ...] = ("differs", "not verified", "equal")
STYLES: dict[Outcome, str] = {"differs": "bold red", "not verified": "bold yellow", "equal": "green"}
"""The style of each word in a terminal."""


_AS_INTENDED: frozenset[NotCompiledCause] = frozenset({"graph break", "no graph", "other backend"})
"""Causes that leave only a lone expression in eager, or that the script chose itself."""


def verdict_of(record: NotCompiled) -> Verdict | None:
    """Return `not verified` for code that should have run compiled and did not; None where it need not."""
    if record.cause in _AS_INTENDED:
        return None
    called = "was not called" if record.cause == "not called" else f"ran in eager ({record.cause})"
    where = f" at {record.span.file}:{record.span.line}" if record.span is not None else ""
    return Verdict("not verified", f"{called}{where}: {record.reason}")


def exit_code_of(verdicts: Iterable[Verdict], allow_unverified: bool) -> int:
    """1 unless every verdict is `equal`; `allow_unverified` lets `not verified` count as success."""
    passing: set[Outcome] = {"equal", "not verified"} if allow_unverified else {"equal"}
    return int(any(verdict.outcome not in passing for verdict in verdicts))
