"""A partition policy: matrix products are kept, what is cheap and large is computed again.

aotlens inspect examples/saved_values.py --policy examples/keep_products.py::keep
"""

from typing import Any, Literal

LARGE = 256 * 1024
"""Bytes from which on a value is worth computing again."""


def keep(value: Any) -> Literal["save", "recompute"] | None:
    """Called once for each value that could be either way; None leaves it to the policy."""
    if value.op in ("aten.mm.default", "aten.addmm.default", "aten.bmm.default"):
        return "save"
    if value.size_bytes >= LARGE and value.flops <= 2 * value.size_bytes:
        return "recompute"
    return None
