"""Places of a report as protocol ranges."""

from lsprotocol import types

from aotlens.model.report import Span
from lsp_server.views import FileView, Position


def position(point: Position) -> types.Position:
    return types.Position(line=point[0], character=point[1])


def span_range(view: FileView, span: Span) -> types.Range | None:
    """Return the current range of a span; None when its text was edited."""
    bounds = view.range_of(span)
    return None if bounds is None else types.Range(start=position(bounds[0]), end=position(bounds[1]))


def overlaps(left: types.Range, right: types.Range) -> bool:
    """Return True if two ranges overlap or touch, since a cursor is an empty range."""
    return _key(left.start) <= _key(right.end) and _key(right.start) <= _key(left.end)


def _key(point: types.Position) -> tuple[int, int]:
    return point.line, point.character
