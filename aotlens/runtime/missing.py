"""The lines for gradients that do not arrive at a backward.

Invariant: the graph computes with zeros for them; an input that such results alone lead to gets no gradient,
as in eager, and not zeros.
"""

from aotlens.ir.program import has_effect
from aotlens.ir.slots import GRADIENTS
from aotlens.partition.records import Partitioned
from aotlens.runtime.builder import TextBuilder
from aotlens.runtime.subclass_backward import BackwardWrappers, TangentText

Conditions = dict[tuple[type, int], str]
"""By the class of a gradient's slot and its index, whether it arrives; without those that always do."""


def write_missing(
    builder: TextBuilder,
    parts: Partitioned,
    wrappers: BackwardWrappers,
    tangents: list[TangentText],
    count: int,
) -> Conditions:
    """For a backward that takes one tangent per result and returns `count` gradients."""
    received = [tangent for tangent in tangents if tangent.nodes]
    several, fills = len(received) > 1, _fills(parts)
    if len(received) == 1 and not fills:
        _write_none(builder, received, count)
    arriving = _arriving(parts, [tangent for tangent in tangents if tangent.differentiable], len(received))
    named = {condition: f"arrives_{at}" for at, condition in enumerate(dict.fromkeys(arriving.values()))}
    with builder.step("fill in missing gradients", _reason(parts, several, fills, arriving)):
        if several and not fills:
            _write_none(builder, received, count)
        builder.add(*(f"{name} = {condition}" for condition, name in named.items()))
        for at, tangent in enumerate(tangents):
            if tangent.nodes and (several or fills):
                wrappers.write_zeros(builder, tangent, at)
    return {key: named[condition] for key, condition in arriving.items()}


def _fills(parts: Partitioned) -> bool:
    """Whether eager's backward does something although no gradient arrives."""
    assert parts.backward is not None  # written for training only
    return parts.joint.fills_missing or any(map(has_effect, parts.backward.nodes))


def _write_none(builder: TextBuilder, received: list[TangentText], count: int) -> None:
    with builder.block(f"if {' and '.join(f'{tangent.parameter} is None' for tangent in received)}:"):
        builder.add(f"return {', '.join(['None'] * count)}")


def _arriving(parts: Partitioned, tangents: list[TangentText], received: int) -> Conditions:
    """The condition for each gradient that comes from some of those that are received."""
    found: Conditions = {}
    for key, of in parts.joint.arrivals.items():
        named = [tangents[at].parameter for at in sorted(of) if tangents[at].nodes]
        if 0 < len(named) < received:
            found[key] = " or ".join(f"{name} is not None" for name in named)
    return found


def _reason(parts: Partitioned, several: bool, fills: bool, arriving: Conditions) -> str:
    assert parts.backward is not None  # written for training only
    if fills and not several:
        return "a custom function takes zeros for a gradient that is missing"
    slots = (out.slot for out in parts.backward.outputs if isinstance(out.slot, GRADIENTS))
    names = dict.fromkeys(f"`{slot.name}`" for slot in slots if (type(slot), slot.index) in arriving)
    others = f"; {', '.join(names)} then may have none either" if names else ""
    return f"several results: some may get no gradient{others}"
