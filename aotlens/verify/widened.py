"""A recording run in double precision: what every rounding of it, by eager or by kernels, is near to.

Invariant: no value in it is narrower than float64, also where the program casts to a type of few bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

from aotlens.codegen.gpu.interpreter.records import RandomNumbersUsed
from aotlens.verify.first_call import observe_alone
from aotlens.verify.observe import Observation, Probe
from aotlens.verify.redrawn import Redrawing
from aotlens.verify.reference import Widening, copy_in_double
from aotlens.verify.world import World


def recording_in_double(
    given: World, call: Callable[..., Any] | None, drawn: Sequence[RandomNumbersUsed | None]
) -> Observation | None:
    """What the recording gives without roundings, with the kernels' random numbers; None where it takes too
    much memory, or its arguments cannot be made."""
    wide = copy_in_double(given)
    if wide is None:
        return None
    with Widening(), Redrawing(drawn):
        return observe_alone(wide, Probe(writes=False), call)
