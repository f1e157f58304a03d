"""Inlay hints: shapes after assignments, bytes at the expressions that save, marks on mutated arguments."""

from collections.abc import Iterable, Iterator

from lsprotocol import types

from aotlens.model.report import Input, SavedValue, Span, Variable
from aotlens.model.spans import line_text
from aotlens.view.ledger import is_mutated
from aotlens.view.partition.reasons import why_text
from aotlens.view.partition.saved import name_at_expression
from aotlens.view.quantities import human_bytes
from lsp_server.settings import Settings
from lsp_server.translate.ranges import overlaps, span_range
from lsp_server.translate.wording import STALE, code, markup, shapes
from lsp_server.views import Shown, Views


def inlay_hints(views: Views, shown: Shown, settings: Settings, wanted: types.Range) -> list[types.InlayHint]:
    """Return the hints of one trace in a range, in the order of the text."""
    hints: list[types.InlayHint] = []
    if settings.inlay_shapes:
        hints += _shape_hints(views, shown)
    if settings.inlay_saved:
        hints += _saved_hints(views, shown)
    if settings.inlay_mutations:
        hints += _mutation_hints(views, shown)
    return in_range(hints, wanted)


def in_range(hints: Iterable[types.InlayHint], wanted: types.Range) -> list[types.InlayHint]:
    """Return the hints in a range, in the order of the text."""
    inside = [hint for hint in hints if overlaps(types.Range(hint.position, hint.position), wanted)]
    return sorted(inside, key=lambda hint: (hint.position.line, hint.position.character))


def _shape_hints(views: Views, shown: Shown) -> Iterator[types.InlayHint]:
    by_span: dict[Span, list[Variable]] = {}
    for spot in shown.spots():
        if spot.variables:
            by_span.setdefault(spot.span, []).extend(spot.variables)
    for span, variables in by_span.items():
        text_range = span_range(shown.view, span)
        if text_range is None:
            continue
        tensor = variables[-1].tensor
        facts = [f"stride {list(tensor.stride)}", tensor.device]
        facts += ["requires grad"] if tensor.requires_grad else []
        facts += [human_bytes(tensor.bytes)] if tensor.bytes is not None else []
        yield types.InlayHint(
            position=text_range.end,
            label=f": {shapes(variable.tensor for variable in variables)}",
            kind=types.InlayHintKind.Type,
            tooltip=_tooltip(views, shown, f"{code(variables[-1].name)}: {', '.join(facts)}"),
        )


def _saved_hints(views: Views, shown: Shown) -> Iterator[types.InlayHint]:
    by_span: dict[Span, list[SavedValue]] = {}
    for spot in shown.spots():
        costly = [saved for saved in spot.saved if saved.bytes > 0]
        # A function may be several targets with different shapes: the largest total counts.
        if _saved_bytes(costly) > _saved_bytes(by_span.get(spot.span, [])):
            by_span[spot.span] = costly
    for span, values in by_span.items():
        text_range = span_range(shown.view, span)
        if text_range is not None:
            lines = [_saved_line(value) for value in values]
            yield types.InlayHint(
                position=text_range.end,
                label=f"saved {human_bytes(_saved_bytes(values))}",
                padding_left=True,
                tooltip=_tooltip(views, shown, "Saved for the backward:\n" + "\n".join(dict.fromkeys(lines))),
            )


def _saved_line(value: SavedValue) -> str:
    return f"- {code(name_at_expression(value))} `{value.tensor.short()}`; {why_text(value)}"


def _saved_bytes(values: Iterable[SavedValue]) -> int:
    return sum(value.bytes for value in values)


def _mutation_hints(views: Views, shown: Shown) -> Iterator[types.InlayHint]:
    marked: set[Span] = set()
    for target in shown.targets():
        signature = shown.view.index.signatures.get(target.qualname)
        for row in target.inputs if signature else ():
            span = signature.arguments.get(row.name) if signature else None
            text_range = span_range(shown.view, span) if span and is_mutated(row) else None
            if span is None or text_range is None or span in marked:
                continue
            marked.add(span)
            yield types.InlayHint(
                position=text_range.start,
                label="mutated",
                kind=types.InlayHintKind.Parameter,
                padding_right=True,
                tooltip=_tooltip(views, shown, _mutation(row, target.file)),
            )


def _mutation(row: Input, home: str | None) -> str:
    lines = list(dict.fromkeys(f"- {line_text(site.span, home)}: {code(site.text)}" for site in row.sites))
    return "\n".join([f"{code(row.name)} is mutated: {row.reason}", *lines])


def _tooltip(views: Views, shown: Shown, text: str) -> types.MarkupContent:
    note = "" if shown.is_fresh else f"\n\n{STALE}"
    return markup(views.client, text + note)
