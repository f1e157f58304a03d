"""When a program lets go of each of its values.

Invariant: the module text deletes its names by this table, and the memory curve counts by it.
"""

from collections.abc import Iterable

from aotlens.ir.program import Node, Program


def last_uses(program: Program, held: Iterable[Node] = ()) -> dict[int, tuple[Node, ...]]:
    """By node position: the values that nobody reads after it, so that their memory is given back.

    Outputs stay, and what the caller has `held`; a value that nobody reads goes at once.
    """
    kept = {id(output.value) for output in program.outputs} | {id(node) for node in held}
    last: dict[int, int] = {}
    by_id: dict[int, Node] = {id(given.node): given.node for given in program.inputs}
    for at, node in enumerate(program.nodes):
        by_id[id(node)] = node
        for source in node.inputs():
            last[id(source)] = at
    for at, node in enumerate(program.nodes):
        last.setdefault(id(node), at)
    dead: dict[int, list[Node]] = {}
    for identity, at in last.items():
        gone = by_id.get(identity)
        if gone is not None and identity not in kept and gone.constant is None:
            dead.setdefault(at, []).append(gone)
    return {at: tuple(found) for at, found in dead.items()}
