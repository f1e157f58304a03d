"""A recording run in double precision: what every rounding of it, by eager or by kernels, is near to.

Invariant: no value in it is narrower than float64, also where the program casts to a type of few bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotlens.codegen.gpu.interpreter.records import Drawn
from aotlens.torch_api import TorchDispatchMode, pytree
from aotlens.verify.first_call import observe_alone
from aotlens.verify.observe import Observation, Probe
from aotlens.verify.redrawn import Redrawing
from aotlens.verify.reference import WIDER, copy_in_double
from aotlens.verify.world import World

BITS = frozenset({torch.ops.aten.view.dtype})
"""Operators for which a type says how to read bits."""


class Widening(TorchDispatchMode):
    """Within it, operators that are asked for a type of few bits give a wide one."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in BITS:
            return func(*args, **(kwargs or {}))
        wide_args, wide_kwargs = pytree.tree_map(_wider, (args, kwargs or {}))
        return func(*wide_args, **wide_kwargs)


def _wider(value: Any) -> Any:
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def recording_in_double(
    given: World, call: Callable[..., Any] | None, drawn: Sequence[Drawn | None]
) -> Observation | None:
    """What the recording gives without roundings, with the kernels' random numbers; None where it takes too
    much memory, or its arguments cannot be made."""
    wide = copy_in_double(given)
    if wide is None:
        return None
    with Widening(), Redrawing(drawn):
        return observe_alone(wide, Probe(writes=False), call)
