"""Search over everything in a target that has a name.

Invariant: a name is listed once for each kind of thing, where it has most details; the best matches come
first, and names with only the letters in order come last.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aotlens.model.report import Stage, Target
from aotlens.view.ledger import kind_name
from aotlens.view.partition.saved import value_name
from aotlens.view.tabs.kernels import kernel_key
from aotlens.view.tabs.tables.rows import Jump, in_order

MOST = 40
"""Matches shown; more letters narrow the search."""

STAGE_ORDER = ("forward", "backward", "inference", "joint")
"""Stages in which a node is looked for first."""


@dataclass(frozen=True, slots=True)
class Named:
    """One thing that has a name."""

    name: str
    what: str
    jump: Jump


@dataclass(frozen=True, slots=True)
class Names:
    """All names of a target, and in small letters for comparing."""

    things: tuple[Named, ...]
    folded: tuple[str, ...]

    def find(self, query: str) -> tuple[Named, ...]:
        """Return the best matches of a query, the best first.

        Blanks are ignored, so that `up weight` finds `up.weight` by its letters in order.
        """
        wanted = "".join(query.casefold().split())
        ranked: list[tuple[int, int, int]] = []
        for position, name in enumerate(self.folded):
            if (rank := rank_of(wanted, name)) is not None:
                ranked.append((rank, len(name), position))
        return tuple(self.things[position] for _, _, position in sorted(ranked)[:MOST])


def rank_of(wanted: str, name: str) -> int | None:
    """Return 0 for the name itself, then higher for its start, a part of it, its letters in order; None for
    no match."""
    position = name.find(wanted)
    if position >= 0:
        return 0 if wanted == name else 1 if position == 0 else 2
    return 3 if in_order(wanted, name) else None


def names_of(target: Target) -> Names:
    things = (
        *ledger_names(target),
        *saved_names(target),
        *node_names(target),
        *(Named(kernel.name, "kernel", Jump("kernels", kernel_key(kernel))) for kernel in target.kernels),
    )
    return Names(things, tuple(thing.name.casefold() for thing in things))


def ledger_names(target: Target) -> Iterator[Named]:
    for entry in target.inputs:
        yield Named(entry.name, kind_name(entry.kind), Jump("ledger", f"input:{entry.index}"))
    for output in target.outputs:
        kind = "side effect" if output.is_side_effect else "result"
        yield Named(output.name, kind, Jump("ledger", f"output:{output.index}"))


def saved_names(target: Target) -> Iterator[Named]:
    partition = target.partition
    for saved in partition.saved if partition else ():
        yield Named(value_name(saved), "saved value", Jump("saved", f"saved:{saved.node}"))
    for again in partition.recomputed if partition else ():
        yield Named(again.node, "recomputed", Jump("saved", f"recomputed:{again.node}"))


def node_names(target: Target) -> Iterator[Named]:
    seen: set[str] = set()
    for stage in sorted(target.stages, key=order):
        for node in stage.nodes:
            if node.name not in seen:
                seen.add(node.name)
                what = f"{node.target or node.op} in the {stage.name} graph"
                yield Named(node.name, what, Jump("graphs", f"{stage.name}/{node.name}"))


def order(stage: Stage) -> int:
    return STAGE_ORDER.index(stage.name) if stage.name in STAGE_ORDER else len(STAGE_ORDER)
