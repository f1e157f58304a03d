"""Which gradients hang on which results, for a backward of some of them only.

Invariant: a leaf from which no path of the graph leads to a result that is differentiated gets None, as in
eager, and no zeros.
"""

from collections.abc import Iterable, Sequence

from aotlens.ir.program import Node


def dependencies(nodes: Iterable[Node], tangents: Sequence[Iterable[Node]]) -> dict[int, int]:
    """By the identity of a node of the backward, the tangents that it depends on, one bit each."""
    found = {id(node): 1 << at for at, inside in enumerate(tangents) for node in inside}
    for node in nodes:
        bits = 0
        for given in node.inputs():
            bits |= found.get(id(given), 0)
        if bits:
            found[id(node)] = bits
    return found


def partial(bits: int, count: int) -> tuple[int, ...]:
    """The positions of the tangents that a gradient depends on, where these are not all that there are."""
    return tuple(at for at in range(count) if bits >> at & 1) if 0 < bits < (1 << count) - 1 else ()
