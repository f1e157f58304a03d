"""What the graphs' texts say of single nodes: computed again, packed, unpacked."""

from collections.abc import Iterable

from aotlens.partition.records import Partitioned, Recomputed
from aotlens.view.quantities import human_bytes, human_flops


def side_notes(parts: Partitioned, side: str) -> dict[str, str]:
    """By node name, of the `forward` or the `backward`; other programs have none."""
    packed = parts.packing.values if parts.packing is not None else ()
    if side == "forward":
        return {leaf.name: f"{PACKED} packs {item.value.name}" for item in packed for leaf in item.leaves}
    if side == "backward":
        unpacked = {item.unpacked.name: f"{PACKED} unpacks {item.value.name}" for item in packed}
        return twin_notes(parts.recomputed) | unpacked
    return {}


PACKED = "the caller's hook"


def twin_notes(recomputed: Iterable[Recomputed]) -> dict[str, str]:
    """By node name: `computed again: twin of forward add_3, 0.5 MFLOP, spares 512.0 KiB`."""
    return {value.node.name: _note(value) for value in recomputed}


def _note(value: Recomputed) -> str:
    costs = [human_flops(value.flops)] if value.flops else []
    costs += [f"spares {human_bytes(value.size_bytes)}"] if value.size_bytes else []
    return ", ".join([f"computed again: twin of forward {value.node.name}", *costs])
