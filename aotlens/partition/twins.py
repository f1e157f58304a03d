"""How the backward's text marks what it computes again."""

from collections.abc import Iterable

from aotlens.partition.records import Recomputed
from aotlens.report.summary import human_bytes, human_flops


def twin_notes(recomputed: Iterable[Recomputed]) -> dict[str, str]:
    """By node name: `computed again: twin of forward add_3, 0.5 MFLOP, spares 512.0 KiB`."""
    return {value.node.name: _note(value) for value in recomputed}


def _note(value: Recomputed) -> str:
    costs = [human_flops(value.flops)] if value.flops else []
    costs += [f"spares {human_bytes(value.size_bytes)}"] if value.size_bytes else []
    return ", ".join([f"computed again: twin of forward {value.node.name}", *costs])
