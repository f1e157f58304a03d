"""How the facts of a report from a log are known. Standard library only, for every front end.

Invariant: each unknown fact has a row, with the reason.
"""

from collections.abc import Sequence

from aotlens.model.target_facts import Origin

__all__ = ["origin_rows", "unknown_text"]


def origin_rows(origins: Sequence[Origin]) -> tuple[tuple[str, str, str], ...]:
    """Return `("unknown", "times of kernels", "a log holds no run times")`, unknown facts first."""
    order = ("unknown", "derived", "logged")
    ordered = sorted(origins, key=lambda origin: order.index(origin.known))
    return tuple((origin.known, origin.fact, origin.source) for origin in ordered)


def unknown_text(origins: Sequence[Origin]) -> str:
    """`unknown: times of kernels; memory`: one line; empty where all is known."""
    unknown = [origin.fact for origin in origins if origin.known == "unknown"]
    return f"unknown: {'; '.join(unknown)}" if unknown else ""
