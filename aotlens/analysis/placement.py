"""Where a mutation of an input happens at run time."""

from aotlens.analysis.records import Geometry, MutationType


def placement(
    mutates_data: bool, moved: Geometry | None, seen: bool, keep_mutations: bool
) -> tuple[MutationType, str]:
    """Where the mutation happens, and why, in the user's words."""
    if moved is not None:
        what = "data and sizes or strides" if mutates_data else "sizes or strides"
        return MutationType.MUTATED_OUT_GRAPH, f"{what} change, which only the wrapper can do"
    if seen:
        return (
            MutationType.MUTATED_OUT_GRAPH,
            "autograd must see the new value, so the wrapper writes it back",
        )
    if not keep_mutations:
        return MutationType.MUTATED_OUT_GRAPH, "in-graph mutations are switched off"
    return MutationType.MUTATED_IN_GRAPH, "autograd need not see the change, so the graph writes it"
