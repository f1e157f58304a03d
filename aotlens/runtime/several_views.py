"""Views that one operator gives at once (`unbind`, `split`, `chunk`), for several results.

Invariant: such an operator runs once for the results that are its views, as in the user's function, and no
two results are the same tensor.
"""

from collections.abc import Callable

from aotlens.analysis.records import OutputAliasInfo
from aotlens.capture.views import ViewStep
from aotlens.runtime.inference_tensors import Modes

Line = Callable[[Modes, str], None]
"""Writes a line that runs under modes."""


class SeveralViews:
    """The names under which `call` has what those operators gave, by modes and expression."""

    def __init__(self, write: Line) -> None:
        self._write = write
        self._free: dict[tuple[Modes, str], tuple[str, set[int | None]]] = {}
        self._names = 0

    def one(self, info: OutputAliasInfo, step: ViewStep, text: str, modes: Modes) -> str:
        """A result's view as an expression; `text` is the same with a call of its own."""
        call = text.removesuffix(f"[{step.result}]")
        if step.result is None or info.refuses_use or info.taken_before or f"out_{info.index}" in call:
            return text
        name, used = self._free.get((modes, call), ("", {step.result}))
        if step.result in used:
            name, used = f"views_{self._names}", set()
            self._names += 1
            self._free[modes, call] = name, used
            self._write(modes, f"{name} = {call}")
        used.add(step.result)
        return f"{name}[{step.result}]"
