"""The memory that no edit of the search lowers: what exists during the whole step, and gradients.

Invariant: the peak of the step is at least this.
"""

from aotlens.model.fit import Fit, KindBytes, peak_of

__all__ = ["floor_of"]


def floor_of(fit: Fit) -> tuple[KindBytes, ...]:
    """Return the bytes that are alive throughout the step by kind, and the most gradients at once."""
    rows: dict[tuple[str, str], KindBytes] = {}
    for each in fit.allocations:
        if each.made < 0 and each.freed is None and each.kind != "gradient":
            row = rows.get((each.kind, each.state), KindBytes(each.kind, 0, each.state))
            rows[each.kind, each.state] = KindBytes(
                each.kind, row.bytes + each.bytes, each.state, row.count + 1
            )
    gradients = [each for each in fit.allocations if each.kind == "gradient"]
    if gradients:
        moment, size_bytes = peak_of(gradients)
        count = sum(each.is_alive_at(moment) for each in gradients)
        rows["gradient", ""] = KindBytes("gradient", size_bytes, count=count)
    return tuple(sorted(rows.values(), key=lambda row: -row.bytes))
