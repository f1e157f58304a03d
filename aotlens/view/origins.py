"""How the facts of a report from a log are known. Standard library only, for every front end.

Invariant: each unknown fact has a row, with the reason.
"""

from collections.abc import Sequence

from aotlens.model.partition import Partition
from aotlens.model.target_facts import Origin
from aotlens.view.names import first_names
from aotlens.view.quantities import counted, human_bytes, human_flops

MOST_NAMES = 6

__all__ = ["origin_rows", "own_choice_text", "unknown_text"]


def origin_rows(origins: Sequence[Origin]) -> tuple[tuple[str, str, str], ...]:
    """Return `("unknown", "times of kernels", "a log holds no run times")`, unknown facts first."""
    order = ("unknown", "derived", "logged")
    ordered = sorted(origins, key=lambda origin: order.index(origin.known))
    return tuple((origin.known, origin.fact, origin.source) for origin in ordered)


def unknown_text(origins: Sequence[Origin]) -> str:
    """`unknown: times of kernels; memory`: one line; empty where all is known."""
    unknown = [origin.fact for origin in origins if origin.known == "unknown"]
    return f"unknown: {'; '.join(unknown)}" if unknown else ""


def own_choice_text(partition: Partition) -> str:
    """Return what our solver would save of a graph that torch partitioned; empty for a partition of ours."""
    own = partition.own
    if own is None:
        return partition.own_note
    solver = "our solver" if own.policy == "min-cut" else f"our solver with policy {own.policy}"
    if not own.only_ours and not own.only_torchs:
        return f"{solver} chooses the same: {human_bytes(own.saved_bytes)}"
    differs = []
    if own.only_torchs:
        differs.append(f"not {first_names(own.only_torchs, MOST_NAMES)}")
    if own.only_ours:
        differs.append(f"but {first_names(own.only_ours, MOST_NAMES)}")
    cost = f"{human_bytes(own.saved_bytes)} and recompute {human_flops(own.recompute_flops)}"
    same = counted(len(own.same), "value")
    return f"{solver} would save {cost}: {same} as torch, {', '.join(differs)}"
