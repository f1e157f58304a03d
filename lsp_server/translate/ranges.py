"""Places of a report as protocol ranges."""

from lsprotocol import types

from aotlens.model.report import Span
from lsp_server.views import FileView, Position


def position(place: Position) -> types.Position:
    return types.Position(line=place[0], character=place[1])


def span_range(view: FileView, span: Span) -> types.Range | None:
    """Where the span stands now; None when its text was edited."""
    found = view.range_of(span)
    return None if found is None else types.Range(start=position(found[0]), end=position(found[1]))


def overlaps(left: types.Range, right: types.Range) -> bool:
    """Whether two ranges share a place; touching ends count, as a cursor is an empty range."""
    return _key(left.start) <= _key(right.end) and _key(right.start) <= _key(left.end)


def _key(place: types.Position) -> tuple[int, int]:
    return place.line, place.character
