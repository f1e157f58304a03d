"""Whether a call finds what a compilation assumes beside the arguments' own signature.

Invariant: a compilation runs only where what its function reads from elsewhere (attributes, globals,
closures) is as it was, and the tensors that it holds are of the same kind.
"""

from collections.abc import Callable
from typing import Any

import torch

from aotlens.capture.effects import carried_places, unwritten_surroundings
from aotlens.capture.surroundings import surroundings_check
from aotlens.frontends.signature import KeptTensors
from aotlens.pipeline import Compiled
from aotlens.torch_api.operators import pytree

Fits = Callable[[Any, Any], bool]
"""Of the arguments and keywords of a call."""


def surroundings_fit(compiled: Compiled) -> Callable[[], bool]:
    return surroundings_check(unwritten_surroundings(compiled.captured))


def kept_tensors(compiled: Compiled, fn: Any, leaves: list[Any]) -> KeptTensors:
    return KeptTensors(fn, leaves, _reached(compiled), carried_places(compiled.captured))


def fitting(compiled: Compiled, args: Any, kwargs: Any) -> Fits | None:
    """What is asked before a call; None where nothing is (the module text sees to the module's tensors)."""
    if compiled.captured.only_once:
        calls = iter((True,))
        return lambda args, kwargs: next(calls, False)
    if not compiled.captured.surroundings.places:
        return None
    around = surroundings_fit(compiled)
    if not _reached(compiled) and not carried_places(compiled.captured):
        return lambda args, kwargs: around()
    kept = kept_tensors(compiled, None, pytree.tree_leaves((args, kwargs)))
    return lambda args, kwargs: around() and kept.fit(pytree.tree_leaves((args, kwargs)))


def _reached(compiled: Compiled) -> list[torch.Tensor]:
    """Tensors that the module text reads and holds, and that are neither arguments nor the module's own."""
    inputs = compiled.captured.inputs
    outside = [one.outside for one in inputs if one.outside is not None and one.found_at is None]
    constants = [value for value in compiled.module.text.bound.values() if isinstance(value, torch.Tensor)]
    return [one for one in (*outside, *constants) if one.layout is torch.strided]
