"""The memory curve: live bytes after each node of the forward and then of the backward.

Invariant: bytes are counted by storage; a view adds nothing, and what the caller owns is not counted.
"""

from aotlens.ir.program import Node, Program
from aotlens.partition.records import Partitioned
from aotlens.partition.storages import node_bytes, storage_root
from aotlens.report.records import LiveValue, Memory


def memory_of(parts: Partitioned) -> Memory:
    """Predicted from the graphs' own order; kernels that a backend fuses use less."""
    curve: list[tuple[str, int]] = []
    live: dict[int, Node] = {}
    total = peak = 0
    at_peak: tuple[Node, ...] = ()
    for program in (parts.forward, parts.backward):
        if program is None:
            continue
        last = _last_reads(program)
        for at, node in enumerate(program.nodes):
            if _allocates(node) and id(node) not in live:
                live[id(node)] = node
                total += node_bytes(node)
            curve.append((node.name, total))
            if total > peak:
                peak, at_peak = total, tuple(live.values())
            for identity in last.get(at, ()):
                gone = live.pop(identity, None)
                total -= node_bytes(gone) if gone is not None else 0
    largest = sorted(at_peak, key=node_bytes, reverse=True)
    rows = tuple(LiveValue(node.name, node_bytes(node), node.origin.place.innermost) for node in largest)
    return Memory(peak, tuple(curve), rows)


def _allocates(node: Node) -> bool:
    """Whether the node's value has memory of its own."""
    return (
        node.op is not None and storage_root(node) is node and not node.origin.effect and not _is_bundle(node)
    )


def _is_bundle(node: Node) -> bool:
    return isinstance(node.val, (list, tuple))


def _last_reads(program: Program) -> dict[int, list[int]]:
    """By position: the storages that nobody reads afterwards."""
    kept = {id(storage_root(out.value)) for out in program.outputs if isinstance(out.value, Node)}
    last: dict[int, int] = {}
    for at, node in enumerate(program.nodes):
        last.setdefault(id(node), at)
        for source in node.inputs():
            last[id(storage_root(source))] = at
    dead: dict[int, list[int]] = {}
    for identity, at in last.items():
        if identity not in kept:
            dead.setdefault(at, []).append(identity)
    return dead
