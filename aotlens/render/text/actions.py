"""The findings to fix first, as text."""

from collections.abc import Iterator

from rich.text import Text

from aotlens.model.report import Report
from aotlens.model.spans import location
from aotlens.render.text.layout import Page, heading, paragraph
from aotlens.view.actions import Action, what_to_do

__all__ = ["action_lines"]

_INDENT = "     "
_STYLES = {"error": "bold red", "warning": "bold yellow"}


def action_lines(report: Report, page: Page) -> Iterator[Text]:
    """Yield the actions over all targets; none if the target's only diagnostic says the same."""
    actions = what_to_do(report)
    if not actions or (len(actions) == 1 and len(report.targets) < 2):
        return
    yield heading("What to do first")
    for number, action in enumerate(actions, 1):
        yield from _lines(action, number, page.width)
    yield Text()


def _lines(action: Action, number: int, width: int) -> Iterator[Text]:
    where = f"  {location(action.span)}" if action.span is not None else ""
    head = Text.assemble(f"  {number}. ", (action.code, _STYLES.get(action.severity, "cyan")), (where, "dim"))
    if action.gain:
        head.append(f"  {action.gain}", "bold")
    yield head
    yield from paragraph(action.sentence, width, _INDENT)
    yield from paragraph(f"→ {action.cure_outside}", width, _INDENT, "green")
