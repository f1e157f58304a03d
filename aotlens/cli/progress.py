"""Show the progress of long operations on stderr, if it is a terminal.

Invariant: without a terminal no observer is installed and nothing is imported.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aotlens.cli.status_line import StatusLine
from aotlens.cli.terminal import on_terminal

__all__ = ["compilations", "waiting"]

Show = Callable[..., None]
"""Takes the parts of the line: the target, the stage."""


@contextmanager
def waiting(what: str) -> Iterator[Show]:
    """Show the current operation, with the parts passed to `Show`, until the end of the block."""
    if not _has_line():
        yield lambda *parts: None
        return
    with StatusLine(sys.stderr) as line:
        line.show(_text(what))
        yield lambda *parts: line.show(_text(what, *parts))


@contextmanager
def compilations(idle: str = "") -> Iterator[None]:
    """Show each compilation in this process: its target, stage and seconds.

    Between compilations `idle` is shown, or nothing, so that the script has the terminal for itself.
    """
    if not _has_line():
        yield
        return
    with StatusLine(sys.stderr) as line, _Compilations(line, idle).observed():
        yield


class _Compilations:
    """The nesting depth of stages, and the innermost stage and target; mutable."""

    def __init__(self, line: StatusLine, idle: str) -> None:
        self._line = line
        self._idle = idle
        self._depth = 0
        self._stage = ""
        self._target = ""

    @contextmanager
    def observed(self) -> Iterator[None]:
        from aotlens.observe import observing
        from aotlens.torch_api.dynamo.state import on_dynamo_compilation  # imports torch

        observer = observing(on_stage=self._on_stage, on_target=self._on_target, on_busy=self._on_busy)
        with observer, on_dynamo_compilation(self._on_dynamo):
            self._show()
            yield

    def _on_dynamo(self, begins: bool) -> None:
        self._on_busy(begins)
        if begins:
            self._on_stage("Dynamo")

    def _on_busy(self, begins: bool) -> None:
        self._depth = max(0, self._depth + (1 if begins else -1))
        if not self._depth:
            self._target = ""
        if not begins:
            self._show()

    def _on_stage(self, stage: str) -> None:
        self._stage = stage
        self._show()

    def _on_target(self, target: str) -> None:
        self._target = target
        self._show()

    def _show(self) -> None:
        if self._depth:
            self._line.show(_text(self._target or "compiling", self._stage))
        elif self._idle:
            self._line.show(_text(self._idle))
        else:
            self._line.hide()


def _text(*parts: str) -> str:
    """Return `aotlens: Block · codegen`."""
    return f"aotlens: {' · '.join(filter(None, parts))}"


def _has_line() -> bool:
    return on_terminal() and os.environ.get("TERM") != "dumb"
