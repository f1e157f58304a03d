"""The memory of a step in the editor: its total at the optimizer's step, and hints at the largest lines."""

import re
from collections.abc import Iterator, Sequence

from lsprotocol import types

from aotlens.view.step_memory.lines import shown_totals, step_span, step_words
from lsp_server.settings import Settings
from lsp_server.translate.diagnostics import uri_of
from lsp_server.translate.hints import in_range
from lsp_server.translate.lenses import FIT
from lsp_server.translate.ranges import span_range
from lsp_server.translate.wording import STALE, markup
from lsp_server.views import HeldTrace, Views

ASK = "Will it fit?"
STEP_CALL = re.compile(r"^\s*[\w.\[\]]+\.step\([^)]*\)\s*(#.*)?$")
OPTIMIZER = "optim"
"""A file without this word has no optimizer: its calls of `step` are of something else."""


def step_lenses(views: Views, path: str, uri: str, lines: Sequence[str]) -> list[types.CodeLens]:
    """Return the step's total at its line, or the question at each call of an optimizer's step."""
    calls = step_calls(lines)
    results = list(_at_step(views, path, calls))
    if results:
        return results
    return [] if path in views.steps else [_lens(number, ASK, uri) for number in calls]


def step_calls(lines: Sequence[str]) -> list[int]:
    """Return the lines, 0-based, that look like a call of an optimizer's step."""
    if not any(OPTIMIZER in line for line in lines):
        return []
    return [number for number, line in enumerate(lines) if STEP_CALL.match(line)]


def _at_step(views: Views, path: str, calls: Sequence[int]) -> Iterator[types.CodeLens]:
    for held, view in views.steps_in(path):
        fit = held.report.fit
        span = step_span(fit) if fit is not None else None
        if fit is None or span is None or held.path_of(span) != path:
            continue
        text_range = span_range(view, span)
        if text_range is not None:
            line = text_range.start.line
            # A step that allocates nothing has no line of its own in the result.
            line = calls[0] if span == fit.at.span and calls and line not in calls else line
            stale = "" if held.is_fresh else "before edits: "
            yield _lens(line, stale + step_words(fit), uri_of(views, held.key[0]))


def _lens(line: int, title: str, uri: str) -> types.CodeLens:
    start = types.Position(line, 0)
    command = types.Command(title=title, command=FIT, arguments=[uri])
    return types.CodeLens(range=types.Range(start, start), command=command)


def step_hints(views: Views, path: str, settings: Settings, wanted: types.Range) -> list[types.InlayHint]:
    """Return the bytes at the step's peak of the largest lines."""
    if not settings.inlay_saved:
        return []
    return in_range((hint for held, _ in views.steps_in(path) for hint in _hints(views, held, path)), wanted)


def _hints(views: Views, held: HeldTrace, path: str) -> Iterator[types.InlayHint]:
    note = "" if held.is_fresh else f"\n\n{STALE}"
    for total in shown_totals(held.report.fit) if held.report.fit is not None else ():
        text_range = span_range(held.views[path], total.span) if path in held.views else None
        if text_range is None or held.path_of(total.span) != path:
            continue
        kinds = "\n".join(f"- {words}" for words in total.kinds)
        yield types.InlayHint(
            position=text_range.end,
            label=total.words,
            padding_left=True,
            tooltip=markup(views.client, f"Alive at the peak of the step:\n{kinds}{note}"),
        )
