"""A node's origin as a site of the report."""

from aotlens.ir.origin import Origin
from aotlens.report.places import text_of
from aotlens.report.records import Site


def site_of(origin: Origin) -> Site | None:
    """Where an operator ran; None when the user has no line for it."""
    span = origin.place.innermost
    return None if span is None else Site(span, text_of(span), origin.op or None)
