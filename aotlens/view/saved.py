"""Which saved values count, and their totals.

Invariant: a number of saved values is the number of those that own memory.  A value that an argument, a
parameter or an output keeps alive anyway costs nothing and is counted apart.
"""

from aotlens.model.report import Partition, RecomputedValue, SavedValue
from aotlens.view.quantities import counted, human_bytes

__all__ = [
    "alive_anyway",
    "alive_anyway_bytes",
    "owning",
    "owning_recomputed",
    "recomputed_total",
    "saved_total",
    "unknown_size",
]


def owning(partition: Partition) -> tuple[SavedValue, ...]:
    """The saved values that own memory, in the order of the partition."""
    return tuple(value for value in partition.saved if value.bytes)


def unknown_size(partition: Partition) -> tuple[SavedValue, ...]:
    """Saved values whose size only the data decides."""
    return tuple(value for value in partition.saved if value.owner == "new" and value.tensor.bytes is None)


def alive_anyway(partition: Partition) -> tuple[SavedValue, ...]:
    """Saved values in memory that arguments, parameters and outputs keep alive without them."""
    unknown = unknown_size(partition)
    return tuple(value for value in partition.saved if not value.bytes and value not in unknown)


def alive_anyway_bytes(partition: Partition) -> int:
    return sum(value.tensor.bytes or 0 for value in alive_anyway(partition))


def owning_recomputed(partition: Partition) -> tuple[RecomputedValue, ...]:
    """Recomputed values that would own memory if they were saved: views and scalars cost neither."""
    return tuple(value for value in partition.recomputed if value.bytes)


def saved_total(partition: Partition) -> str:
    """`13.4 MiB in 36 values`."""
    return f"{human_bytes(partition.saved_bytes)} in {counted(len(owning(partition)), 'value')}"


def recomputed_total(partition: Partition) -> str:
    """`12.4 MiB in 40 values`: what saving them would take."""
    values = owning_recomputed(partition)
    return f"{human_bytes(sum(value.bytes for value in values))} in {counted(len(values), 'value')}"
