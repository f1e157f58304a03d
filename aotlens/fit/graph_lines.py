"""Map each line of a compiled module's text to the user's line, so that compiled code is counted by line too.

Invariant: a line is identified by the name that it assigns, which is a node of the graph whose function
contains the line; other lines have no answer.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType

import torch

import aotlens
from aotlens.compiled import Compiled
from aotlens.ir.origin import Frames

__all__ = ["GraphLines", "compiled_caller"]

MODULE_TEXT = "<aotlens "
"""Prefix of the file name of a compiled module's text."""
BETWEEN = tuple(str(Path(file).parent) + os.sep for file in (torch.__file__, aotlens.__file__))
"""Folders of the frames between an operator's call and the mode, among them other modes of torch."""

_FUNCTION = re.compile(r"\s*def (\w+)\(")
_ASSIGNED = re.compile(r"\s+(\w+) = ")


class GraphLines:
    """The user's frames of compiled code; `compiled` may grow while the script runs."""

    def __init__(self, compiled: Sequence[Compiled]) -> None:
        self._compiled = compiled
        self._frames_by_line: dict[str, dict[int, Frames]] = {}
        """By the module's file name, then by line."""

    def frames_at(self, code: CodeType, line: int) -> Frames | None:
        """Return the user's frames of the node that this line computes; None if it computes none."""
        if code.co_filename not in self._frames_by_line:
            self._frames_by_line[code.co_filename] = self._read(code.co_filename)
        return self._frames_by_line[code.co_filename].get(line)

    def _read(self, filename: str) -> dict[int, Frames]:
        for compiled in self._compiled:
            if compiled.module.filename == filename:
                return dict(_lines(compiled))
        return {}


def _lines(compiled: Compiled) -> Iterator[tuple[int, Frames]]:
    programs = {"forward_graph": compiled.parts.forward, "backward_graph": compiled.parts.backward}
    origins = {
        (function, node.name): node.origin.location
        for function, program in programs.items()
        if program is not None
        for node in program.nodes
    }
    function = ""
    for number, text in enumerate(compiled.source.splitlines(), 1):
        if (start := _FUNCTION.match(text)) is not None:
            function = start[1]
        elif (assigned := _ASSIGNED.match(text)) is not None and (function, assigned[1]) in origins:
            yield number, origins[function, assigned[1]]


def compiled_caller() -> FrameType | None:
    """Return the frame of a compiled module's text that calls the operator; None for other code."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(BETWEEN):
        frame = frame.f_back
    is_compiled = frame is not None and frame.f_code.co_filename.startswith(MODULE_TEXT)
    return frame if is_compiled else None
