"""When in a step something happens, in words."""

from aotlens.model.fit import FitMoment
from aotlens.model.spans import location
from aotlens.view.names import without_default

__all__ = ["moment_words"]


def moment_words(moment: FitMoment) -> str:
    """`backward, aten.mm at train.py:40`: the phase, the operator and its line."""
    op = without_default(moment.op) or "a tensor that no operator created"
    where = f" at {location(moment.span)}" if moment.span is not None else ""
    return f"{moment.phase}, {op}{where}"
