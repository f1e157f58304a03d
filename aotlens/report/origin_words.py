"""What a report from a log says of how its facts are known.  Stdlib only, for every front end.

Invariant: what is unknown is named, one row for each fact, with the reason.
"""

from collections.abc import Sequence

from aotlens.report.origin_records import Origin

__all__ = ["origin_rows", "unknown_text"]


def origin_rows(origins: Sequence[Origin]) -> tuple[tuple[str, str, str], ...]:
    """`("unknown", "times of kernels", "a log holds no run times")`: what is unknown first."""
    order = ("unknown", "derived", "logged")
    ordered = sorted(origins, key=lambda origin: order.index(origin.known))
    return tuple((origin.known, origin.fact, origin.source) for origin in ordered)


def unknown_text(origins: Sequence[Origin]) -> str:
    """`unknown: times of kernels; memory`: one line; empty where all is known."""
    unknown = [origin.fact for origin in origins if origin.known == "unknown"]
    return f"unknown: {'; '.join(unknown)}" if unknown else ""
